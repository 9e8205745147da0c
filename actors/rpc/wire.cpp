#include "actors/rpc/wire.h"

#include <fmt/format.h>

#include "actors/rpc/validate.h"

namespace troupe::rpc {
namespace {

std::string text(capnp::Text::Reader from) {
  return {from.begin(), from.size()};
}
kj::StringPtr view(const std::string& from) {
  return {from.c_str(), from.size()};
}

// The enumerants of both sides have the same numbers (tests compare them one by one); a number that
// this program does not know, from a peer of another version, becomes `otherwise`.
template <class To, class From>
To enumerant(From from, To last, To otherwise) {
  const auto number = static_cast<unsigned>(from);
  return number <= static_cast<unsigned>(last) ? static_cast<To>(number) : otherwise;
}

template <class From>
auto number_of(From value) {
  return static_cast<uint16_t>(value);
}

unsigned list_size(size_t size) {
  return static_cast<unsigned>(size);
}

}  // namespace

void write(const Error& error, schema::Failure::Builder to) {
  to.setCode(static_cast<schema::FailureCode>(number_of(error.code)));
  to.setMessage(view(error.message));
}

Error read(schema::Failure::Reader from) {
  return Error{enumerant(from.getCode(), ErrorCode::kInternal, ErrorCode::kInternal),
               text(from.getMessage())};
}

Result<void> read_outcome(bool failed, schema::Failure::Reader failure) {
  if (failed) return read(failure);
  return {};
}

Result<GenerateCall> read(schema::GenerateRequest::Reader from) {
  const auto too_large = [](const char* what, size_t seen, size_t limit) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} of {}, limit {}", what, seen, limit)};
  };
  GenerateCall call;
  call.id = text(from.getId());
  call.model = text(from.getModel());
  const auto prompt = from.getPrompt();
  switch (prompt.which()) {
    case schema::GenerateRequest::Prompt::NONE:
      break;
    case schema::GenerateRequest::Prompt::TEXT:
      if (prompt.getText().size() > kPromptBytesMax)
        return too_large("a prompt in bytes", prompt.getText().size(), kPromptBytesMax);
      call.prompt = text(prompt.getText());
      break;
    case schema::GenerateRequest::Prompt::MESSAGES: {
      const auto messages = prompt.getMessages();
      if (messages.size() > kMessagesMax)
        return too_large("a number of chat messages", messages.size(), kMessagesMax);
      for (const auto message : messages)
        call.messages.push_back({text(message.getRole()), text(message.getContent())});
      break;
    }
    case schema::GenerateRequest::Prompt::TOKENS: {
      const auto tokens = prompt.getTokens();
      if (tokens.size() > kPromptTokensMax)
        return too_large("a prompt in tokens", tokens.size(), kPromptTokensMax);
      call.prompt_tokens.reserve(tokens.size());
      for (const uint32_t token : tokens) call.prompt_tokens.push_back(token);
      break;
    }
    default:
      return Error{ErrorCode::kInvalidArgument, "a kind of prompt that this daemon does not know"};
  }
  call.max_tokens = from.getMaxTokens();
  call.sampling = {from.getTemperature(), from.getTopP(), from.getSeed(), from.getTopK(),
                   from.getMinP()};
  call.ignore_end = from.getIgnoreEnd();
  call.after = from.getAfter();
  return call;
}

void write(const GenerateCall& call, schema::GenerateRequest::Builder to) {
  to.setId(view(call.id));
  to.setModel(view(call.model));
  auto prompt = to.getPrompt();
  if (!call.prompt.empty()) {
    prompt.setText(view(call.prompt));
  } else if (!call.messages.empty()) {
    auto messages = prompt.initMessages(list_size(call.messages.size()));
    for (unsigned i = 0; i < messages.size(); ++i) {
      messages[i].setRole(view(call.messages[i].role));
      messages[i].setContent(view(call.messages[i].content));
    }
  } else if (!call.prompt_tokens.empty()) {
    auto tokens = prompt.initTokens(list_size(call.prompt_tokens.size()));
    for (unsigned i = 0; i < tokens.size(); ++i) tokens.set(i, call.prompt_tokens[i]);
  } else {
    prompt.setNone();
  }
  to.setMaxTokens(call.max_tokens);
  to.setTemperature(call.sampling.temperature);
  to.setTopP(call.sampling.top_p);
  to.setSeed(call.sampling.seed);
  to.setTopK(call.sampling.top_k);
  to.setMinP(call.sampling.min_p);
  to.setIgnoreEnd(call.ignore_end);
  to.setAfter(call.after);
}

GeneratedPiece read(schema::Piece::Reader from) {
  return {from.getIndex(), from.getToken(), text(from.getText()), from.getLogitsDigest()};
}

void write(const GeneratedPiece& piece, schema::Piece::Builder to) {
  to.setIndex(piece.index);
  to.setToken(piece.token);
  to.setText(view(piece.text));
  to.setLogitsDigest(piece.logits_digest);
}

GenerateEnd read(schema::GenerateEnd::Reader from) {
  GenerateEnd end;
  end.reason = enumerant(from.getReason(), FinishReason::kFailed, FinishReason::kFailed);
  end.prompt_tokens = from.getPromptTokens();
  end.generated_tokens = from.getGeneratedTokens();
  end.text = text(from.getText());
  if (end.reason == FinishReason::kFailed) end.error = read(from.getFailure());
  return end;
}

void write(const GenerateEnd& end, const RequestId& id, schema::GenerateEnd::Builder to) {
  to.setId(view(id));
  to.setReason(static_cast<schema::FinishReason>(number_of(end.reason)));
  to.setPromptTokens(end.prompt_tokens);
  to.setGeneratedTokens(end.generated_tokens);
  to.setText(view(end.text));
  if (end.error) write(*end.error, to.initFailure());
}

Result<FaultCall> read(schema::Fault::Reader from) {
  const auto kind = number_of(from.getKind());
  if (kind > number_of(FaultKind::kHang))
    return Error{ErrorCode::kInvalidArgument, fmt::format("fault kind {}, known are 0 to 2", kind)};
  if (from.getModel().size() > kModelNameBytesMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a model name of {} bytes, limit {}", from.getModel().size(),
                             kModelNameBytesMax)};
  if (from.getText().size() > kFaultTextMax)
    return Error{ErrorCode::kInvalidArgument, fmt::format("a fault of {} bytes, limit {}",
                                                          from.getText().size(), kFaultTextMax)};
  return FaultCall{text(from.getModel()), from.getStage(), static_cast<FaultKind>(kind),
                   text(from.getText())};
}

void write(const FaultCall& call, schema::Fault::Builder to) {
  to.setModel(view(call.model));
  to.setStage(call.stage);
  to.setKind(static_cast<schema::FaultKind>(number_of(call.kind)));
  to.setText(view(call.text));
}

Result<StandbyCall> read(schema::Session::SetStandbyParams::Reader from) {
  const auto policy = number_of(from.getPolicy());
  if (policy > number_of(StandbyPolicy::kInput))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("standby policy {}, known are 0 to 2", policy)};
  StandbyCall call{text(from.getModel()), static_cast<StandbyPolicy>(policy)};
  TROUPE_TRY_VOID(validate(call));
  return call;
}

void write(const StandbyCall& call, schema::Session::SetStandbyParams::Builder to) {
  to.setModel(view(call.model));
  to.setPolicy(static_cast<schema::StandbyPolicy>(number_of(call.policy)));
}

Result<DrainCall> read(schema::Session::DrainNodeParams::Reader from) {
  DrainCall call{text(from.getNode()), from.getDrained()};
  TROUPE_TRY_VOID(validate(call));
  return call;
}

void write(const DrainCall& call, schema::Session::DrainNodeParams::Builder to) {
  to.setNode(view(call.node));
  to.setDrained(call.drained);
}

Result<MoveCall> read(schema::Session::MoveStageParams::Reader from) {
  MoveCall call{text(from.getModel()), from.getStage(), text(from.getNode())};
  TROUPE_TRY_VOID(validate(call));
  return call;
}

void write(const MoveCall& call, schema::Session::MoveStageParams::Builder to) {
  to.setModel(view(call.model));
  to.setStage(call.stage);
  to.setNode(view(call.node));
}

Error error_from(const kj::Exception& exception) {
  const auto description = exception.getDescription();
  std::string message(description.begin(), description.size());
  switch (exception.getType()) {
    case kj::Exception::Type::DISCONNECTED:
    case kj::Exception::Type::OVERLOADED:
      return {ErrorCode::kUnavailable, std::move(message)};
    case kj::Exception::Type::UNIMPLEMENTED:
      return {ErrorCode::kInvalidArgument, "not known to the other side: " + message};
    case kj::Exception::Type::FAILED:
      break;
  }
  return {ErrorCode::kInternal, std::move(message)};
}

}  // namespace troupe::rpc
