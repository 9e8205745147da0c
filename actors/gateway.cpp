#include "actors/gateway.h"

#include <caf/send.hpp>

#include <algorithm>

#include "actors/deadlines.h"
#include "actors/exceptions.h"
#include "base/log.h"

namespace troupe {
namespace {

GenerateEnd failed_end(const Error& why) {
  GenerateEnd end;
  end.reason = FinishReason::kFailed;
  end.error = why;
  return end;
}

// The same request, so that its tokens are the same, too.
bool same_request(const RequestRecord& a, const RequestRecord& b) {
  return a.model == b.model && a.prompt == b.prompt && a.max_tokens == b.max_tokens &&
         a.sampling == b.sampling && a.ignore_end == b.ignore_end;
}

}  // namespace

void GatewayPort::generate(GenerateCall call, std::shared_ptr<PieceSink> sink) {
  caf::anon_send(gateway_, GenerateOrder{std::move(call), std::move(sink)});
}
void GatewayPort::detach(const RequestId& id, const PieceSink* sink) {
  caf::anon_send(gateway_, DetachSink{id, sink});
}
void GatewayPort::cancel(const RequestId& id, Done done) {
  caf::anon_send(gateway_, CancelOrder{id, std::move(done)});
}
void GatewayPort::status(StatusAnswer answer) {
  caf::anon_send(gateway_, StatusOrder{std::move(answer)});
}
void GatewayPort::inject_fault(FaultCall call, Done done) {
  caf::anon_send(gateway_, InjectOrder{std::move(call), std::move(done)});
}
void GatewayPort::drain(DrainCall call, Done done) {
  caf::anon_send(gateway_, OperatorRequest{std::move(call), std::move(done)});
}
void GatewayPort::move(MoveCall call, Done done) {
  caf::anon_send(gateway_, OperatorRequest{std::move(call), std::move(done)});
}
void GatewayPort::set_standby(StandbyCall call, Done done) {
  caf::anon_send(gateway_, OperatorRequest{std::move(call), std::move(done)});
}
void GatewayPort::shutdown(ShutdownCall call, Done done) {
  done(shutdown_
           ? shutdown_(call)
           : Result<void>(Error{ErrorCode::kUnavailable, "this daemon is not stopped this way"}));
}

void GatewayState::generate(const GenerateOrder& order) {
  const GenerateCall& call = order.call;
  if (stopping)
    return order.sink->end(failed_end({ErrorCode::kUnavailable, "the daemon is shutting down"}));
  if (!call.model.empty() && call.model != options.deployment)
    return order.sink->end(
        failed_end({ErrorCode::kNotFound, fmt::format("no model '{}' here, there is '{}'",
                                                      call.model, options.deployment)}));
  if (!serving || !codec)
    return order.sink->end(failed_end({ErrorCode::kUnavailable, not_serving_why}));
  admit_and_record(call, order.sink);
}

void GatewayState::admit_and_record(const GenerateCall& call,
                                    const std::shared_ptr<PieceSink>& sink) {
  auto prompt = codec->encode(call);
  if (!prompt.ok()) return sink->end(failed_end(prompt.error()));
  AdmissionRequest facts;
  facts.id = call.id;
  facts.prompt_tokens = prompt.value().size();
  facts.token_largest = prompt.value().empty() ? 0 : std::ranges::max(prompt.value());
  facts.max_tokens = call.max_tokens;
  facts.sampling = call.sampling;
  facts.queued = static_cast<uint64_t>(
      std::ranges::count_if(streams, [](const auto& entry) { return !entry.second.end; }));
  const auto known = streams.find(call.id);
  if (known != streams.end() && facts.queued > 0) --facts.queued;  // it has its place already
  const auto admitted = admit(options.limits, facts);
  if (!admitted.ok()) return sink->end(failed_end(admitted.error()));

  RequestRecord record;
  record.id = call.id;
  record.model = options.deployment;
  record.profile = options.profile;
  record.prompt = std::move(prompt).value();
  record.max_tokens = max_tokens_granted(options.limits, facts);
  record.sampling = call.sampling;
  record.ignore_end = call.ignore_end;
  record.created_unix_ms = wall_clock_ms();
  if (known != streams.end()) {
    if (!same_request(known->second.record, record))
      return sink->end(failed_end(
          {ErrorCode::kConflict, "this request id was used for a different request already"}));
    if (!known->second.end || known->second.end->reason != FinishReason::kFailed)
      return listen(known->second, call.after, sink);
    streams.erase(known);  // it failed: this is another try
  }
  Stream& stream = streams[call.id];
  stream.record = record;
  stream.detokenizer = codec->detokenizer();
  listen(stream, call.after, sink);
  self->request(options.ledger, caf::timespan{kAnswerMax}, CreateRecord{record})
      .then([this, id = call.id](const RecordOutcome& outcome) { recorded(id, outcome); },
            [this, id = call.id](const caf::error& error) {
              fail(id, {ErrorCode::kUnavailable, "ledger: " + self->system().render(error)});
            });
}

// Only now may anything be shown: the record is durable (recovery.md I4).
void GatewayState::recorded(const RequestId& id, const RecordOutcome& outcome) {
  const auto found = streams.find(id);
  if (found == streams.end() || found->second.end) return;  // cancelled meanwhile
  // A disk that is full or away is not the request's fault: the client may ask again.
  if (outcome.error) return fail(id, {ErrorCode::kUnavailable, outcome.error->message});
  if (!outcome.created && !same_request(outcome.record, found->second.record))
    return fail(id,
                {ErrorCode::kConflict, "this request id was used for a different request already"});
  // Tokens of other numbers are not this head's business.
  if (!outcome.created && outcome.record.profile == options.profile)
    take_up(found->second, outcome.logged);
  submit(found->second);
}

// A head that started anew goes on behind what the last one showed. The last token is generated
// again, so that there is one to end with.
void GatewayState::take_up(Stream& stream, std::span<const LoggedToken> logged) {
  const size_t most = stream.record.max_tokens - size_t{1};
  for (const LoggedToken& one : logged.first(std::min(logged.size(), most)))
    show(stream, one.token, one.logits_digest);
  stream.logged = stream.pieces.size();
  deliver(stream);
}

void GatewayState::show(Stream& stream, uint32_t token, uint64_t logits_digest) {
  GeneratedPiece piece{stream.pieces.size(), token, {}, logits_digest};
  if (stream.detokenizer) piece.text = stream.detokenizer->feed(token);
  stream.pieces.push_back(std::move(piece));
}

// What was shown since the last time.
void GatewayState::log_tokens() {
  LogTokens order;
  for (auto& [id, stream] : streams) {
    if (!stream.submitted || stream.logged == stream.pieces.size()) continue;
    TokenRun run{id, static_cast<uint32_t>(stream.logged), {}};
    for (; stream.logged < stream.pieces.size(); ++stream.logged) {
      const GeneratedPiece& piece = stream.pieces[stream.logged];
      run.tokens.push_back({piece.token, piece.logits_digest});
    }
    order.runs.push_back(std::move(run));
  }
  if (!order.runs.empty()) self->send(options.ledger, std::move(order));
}

void GatewayState::submit(Stream& stream) {
  const RequestRecord& record = stream.record;
  BatchRequest request;
  request.id = record.id;
  request.prompt = record.prompt;
  for (const GeneratedPiece& piece : stream.pieces) request.generated.push_back(piece.token);
  request.max_tokens = record.max_tokens;
  request.sampling = record.sampling;
  if (!record.ignore_end) request.stop_tokens = codec->stop_tokens();
  stream.submitted = true;
  self->request(batcher, caf::timespan{kAnswerMax}, Submit{std::move(request)})
      .then(
          [this, id = record.id](const SubmitOutcome& outcome) {
            if (outcome.error) fail(id, *outcome.error);
          },
          [this, id = record.id](const caf::error& error) {
            fail(id, {ErrorCode::kUnavailable, "batcher: " + self->system().render(error)});
          });
}

void GatewayState::listen(Stream& stream, uint64_t after, std::shared_ptr<PieceSink> sink) {
  stream.listeners.push_back({std::move(sink), after});
  deliver(stream);
}

void GatewayState::event(const BatchEvent& event) {
  const auto found = streams.find(event.id);
  if (found == streams.end() || found->second.end) return;
  Stream& stream = found->second;
  const bool shown =
      event.token && event.index == stream.pieces.size() && event.finish != FinishReason::kStop;
  if (shown) show(stream, *event.token, event.logits_digest);
  if (!event.finish) return deliver(stream);
  GenerateEnd end;
  end.reason = *event.finish;
  if (end.reason == FinishReason::kFailed) end.error = Error{ErrorCode::kInternal, event.failure};
  end_stream(stream, std::move(end));
}

void GatewayState::deliver(Stream& stream) {
  for (Listener& listener : stream.listeners) {
    for (; listener.next < stream.pieces.size(); ++listener.next)
      listener.sink->piece(stream.pieces[listener.next]);
    if (stream.end) listener.sink->end(*stream.end);
  }
  if (stream.end) stream.listeners.clear();
}

void GatewayState::end_stream(Stream& stream, GenerateEnd end) {
  end.prompt_tokens = static_cast<uint32_t>(stream.record.prompt.size());
  end.generated_tokens = static_cast<uint32_t>(stream.pieces.size());
  if (stream.detokenizer) end.text = stream.detokenizer->flush();
  stream.end = std::move(end);
  stream.idle_since = self->clock().now();
  log_info("gateway", "request {}: {} after {} tokens{}", stream.record.id,
           to_string(stream.end->reason), stream.pieces.size(),
           stream.end->error ? ": " + stream.end->error->message : "");
  if (stream.submitted)
    self->send(options.ledger, FinishRecord{stream.record.id, to_string(stream.end->reason)});
  deliver(stream);
}

void GatewayState::fail(const RequestId& id, const Error& why) {
  const auto found = streams.find(id);
  if (found != streams.end() && !found->second.end) end_stream(found->second, failed_end(why));
}

void GatewayState::detach(const DetachSink& order) {
  const auto found = streams.find(order.id);
  if (found == streams.end()) return;
  std::erase_if(found->second.listeners,
                [&](const Listener& listener) { return listener.sink.get() == order.sink; });
  if (found->second.listeners.empty() && !found->second.end)
    found->second.idle_since = self->clock().now();
}

void GatewayState::cancel(const CancelOrder& order) {
  const auto found = streams.find(order.id);
  if (found == streams.end() || found->second.end)
    return order.done(Error{ErrorCode::kNotFound, "no such request is running"});
  if (found->second.submitted) self->send(batcher, CancelRequest{order.id});
  GenerateEnd end;
  end.reason = FinishReason::kCancelled;
  end_stream(found->second, std::move(end));
  order.done({});
}

void GatewayState::sweep() {
  const Instant now = self->clock().now();
  // Time in which this did not run is nobody's absence: who came meanwhile is still to be heard.
  const Duration late = now - sweep_due;
  if (late > options.tick)
    for (auto& [id, stream] : streams) stream.idle_since = std::min(now, stream.idle_since + late);
  sweep_due = now + options.tick;
  size_t ended = static_cast<size_t>(std::ranges::count_if(
      streams, [](const auto& entry) { return entry.second.end.has_value(); }));
  for (auto entry = streams.begin(); entry != streams.end();) {
    Stream& stream = entry->second;
    if (stream.end && (now - stream.idle_since > options.ended_kept || ended > options.ended_max)) {
      entry = streams.erase(entry);
      --ended;
      continue;
    }
    if (!stream.end && stream.listeners.empty() &&
        now - stream.idle_since > options.listener_grace) {
      log_info("gateway", "request {}: nobody listens any more", stream.record.id);
      if (stream.submitted) self->send(batcher, CancelRequest{stream.record.id});
      GenerateEnd end;
      end.reason = FinishReason::kCancelled;
      end_stream(stream, std::move(end));
    }
    ++entry;
  }
  log_tokens();
  self->delayed_send(self, options.tick, Tick{});
}

void GatewayState::stop() {
  stopping = true;
  log_tokens();
  for (auto& [id, stream] : streams) {
    if (stream.end) continue;
    if (stream.submitted && batcher) self->send(batcher, CancelRequest{id});
    // Not finished in the ledger: a client that comes back resumes it.
    stream.submitted = false;
    end_stream(stream, failed_end({ErrorCode::kUnavailable, "the daemon is shutting down"}));
  }
}

GatewayActor::behavior_type gateway_actor(GatewayActor::stateful_pointer<GatewayState> self,
                                          GatewayOptions options) {
  GatewayState& state = self->state;
  state.self = self;
  state.options = std::move(options);
  state.sweep_due = self->clock().now() + state.options.tick;
  self->delayed_send(self, state.options.tick, Tick{});
  self->set_exception_handler(keep_text);
  return {
      [&state](const GatewayBinding& binding) {
        state.batcher = binding.batcher;
        state.scheduler = binding.scheduler;
        state.codec = *binding.codec;
      },
      [&state](const GenerateOrder& order) { state.generate(order); },
      [&state](const DetachSink& order) { state.detach(order); },
      [&state](const CancelOrder& order) { state.cancel(order); },
      [&state](const StatusOrder& order) {
        state.self->request(state.scheduler, caf::timespan{Duration{5s}}, GetClusterStatus{})
            .then([done = order.done](const ClusterStatus& status) { done(status); },
                  [done = order.done, &state](const caf::error& error) {
                    done(Error{ErrorCode::kUnavailable,
                               "scheduler: " + state.self->system().render(error)});
                  });
      },
      [&state](const InjectOrder& order) {
        state.self->request(state.scheduler, caf::timespan{Duration{10s}}, FaultOrder{order.fault})
            .then(
                [done = order.done](const FaultOutcome& outcome) {
                  done(outcome.error ? Result<void>(*outcome.error) : Result<void>());
                },
                [done = order.done, &state](const caf::error& error) {
                  done(Error{ErrorCode::kUnavailable,
                             "scheduler: " + state.self->system().render(error)});
                });
      },
      [&state](const OperatorRequest& request) {
        state.self
            ->request(state.scheduler, caf::timespan{Duration{10s}}, OperatorOrder{request.call})
            .then(
                [done = request.done](const OperatorOutcome& outcome) {
                  done(outcome.error ? Result<void>(*outcome.error) : Result<void>());
                },
                [done = request.done, &state](const caf::error& error) {
                  done(Error{ErrorCode::kUnavailable,
                             "scheduler: " + state.self->system().render(error)});
                });
      },
      [&state](const BatchEvents& batch) {
        for (const BatchEvent& event : batch.events) state.event(event);
      },
      [&state](const ServingState& serving) {
        state.serving = serving.serving;
        state.not_serving_why = serving.why;
      },
      [&state](const Shutdown&) { state.stop(); },
      [&state](const Tick&) { state.sweep(); },
  };
}

}  // namespace troupe
