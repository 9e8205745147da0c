// troupe chat: a conversation with the cluster, line by line.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/cli/answer_options.h"
#include "apps/cli/cluster_client.h"
#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace troupe::cli {
namespace {

struct ChatCommand {
  ClusterChoice cluster;
  std::string model, system;
  AnswerOptions answer;
};

class Conversation {
 public:
  Conversation(const ChatCommand& options, const SamplingParameters& sampling)
      : options_(options), sampling_(sampling) {
    clear();
  }

  void clear() {
    messages_.clear();
    if (!options_.system.empty())
      messages_.push_back({.role = "system", .content = options_.system});
  }

  // Ctrl-C while an answer comes ends the answer; at the prompt it ends the program.
  void interrupt() {
    if (!answering_ || interrupted_.exchange(true)) {
      fmt::print("\n");
      std::fflush(stdout);
      std::_Exit(kExitInterrupted);
    }
  }

  // Streams the answer; what fails is told, and the question is forgotten.
  void ask(Client& client, const std::string& question) {
    messages_.push_back({.role = "user", .content = question});
    GenerateRequest request;
    request.id = fresh_request_id();
    request.model = options_.model;
    request.messages = messages_;
    request.max_tokens = options_.answer.max_tokens;
    request.sampling = sampling_;
    interrupted_ = false;
    answering_ = true;
    const Result<GenerateOutcome> outcome =
        client.generate(request, [&](const GeneratedPiece& piece) {
          show(piece.text);
          return !interrupted_;
        });
    answering_ = false;
    if (!outcome.ok()) {
      fmt::print("\n");
      report(outcome.error());
      messages_.pop_back();
      return;
    }
    show(outcome.value().tail);
    fmt::print("\n");
    if (outcome.value().reason == FinishReason::kLength)
      fmt::print("{}\n", styled("(cut off: the limit of tokens was reached)", Style::kFaint));
    messages_.push_back({.role = "assistant", .content = outcome.value().text});
  }

 private:
  static void show(const std::string& text) {
    fmt::print("{}", is_terminal(stdout) ? printable(text) : text);
    std::fflush(stdout);
  }

  const ChatCommand& options_;
  SamplingParameters sampling_;
  std::vector<ChatMessage> messages_;
  std::atomic<bool> answering_{false}, interrupted_{false};
};

int chat(const ChatCommand& options) {
  const Result<SamplingParameters> sampling = sampling_of(options.answer);
  if (!sampling.ok()) return report_usage(sampling.error().message);
  Conversation conversation(options, sampling.value());
  const InterruptWatch watch([&] { conversation.interrupt(); });
  Result<std::unique_ptr<Client>> client = connect_to(options.cluster, "troupe chat");
  if (!client.ok()) return report(client.error());

  const bool terminal = is_terminal(stdin) && is_terminal(stdout);
  if (terminal)
    fmt::print("{}\n", styled("/clear forgets the conversation, /exit or Ctrl-D ends it, Ctrl-C "
                              "cuts an answer short",
                              Style::kFaint));
  while (true) {
    if (terminal) fmt::print("{}", styled("> ", Style::kStrong));
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/exit" || line == "/quit") return kExitOk;
    if (line == "/clear") {
      conversation.clear();
    } else if (line.front() == '/' && line.find(' ') == std::string::npos) {
      fmt::print("unknown command {}; there are /clear and /exit\n", printable(line));
    } else {
      conversation.ask(*client.value(), line);
    }
  }
  if (terminal) fmt::print("\n");
  return kExitOk;
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ChatCommand>();
  options->answer.max_tokens = 512;
  CLI::App* command = app.add_subcommand("chat", "Talk with the cluster, line by line");
  add_cluster_options(*command, options->cluster);
  add_answer_options(*command, options->answer);
  command->add_option("--model", options->model, "Which deployment, if there are several");
  command->add_option("--system", options->system,
                      "What the model is told before the conversation");
  command->footer(
      "In the conversation: /clear forgets it, /exit or Ctrl-D ends it, Ctrl-C cuts an\n"
      "answer short.\n\nExample:\n  troupe chat -t 0.7 --system \"You answer in verse.\"");
  command->callback([options, &exit_code] { exit_code = chat(*options); });
}

}  // namespace troupe::cli
