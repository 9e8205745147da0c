// Starting, recognising and stopping daemons, with shell scripts that are called trouped.
#include "apps/cli/daemon_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <boost/test/unit_test.hpp>

#include "tests/unit/apps/scratch_folder.h"

using namespace troupe;
using namespace troupe::cli;

namespace {

// A stand-in for the daemon: /proc shows a script's interpreter as its program, so it is a copy of
// the shell.
struct StandIn {
  explicit StandIn(const std::string& script) {
    std::filesystem::copy_file("/bin/sh", folder.file("trouped"));
    std::filesystem::create_directories(folder.file("node-1"));
    // The shell gets "--keep --config …" as its arguments: it must take a script instead. ENV is no
    // way in for a shell that is not interactive, so the config file itself is the script, and a
    // wrapper passes it on.
    folder.write("node-1/config.yaml", script);
    folder.write("wrapper", "#!/bin/sh\nexec " + folder.file("trouped") + " \"$3\"\n");
    std::filesystem::permissions(folder.file("wrapper"), std::filesystem::perms::owner_all);
    daemon.node = "node-1";
    daemon.folder = folder.file("node-1");
    const Result<void> started = start_daemon(folder.file("wrapper"), daemon);
    BOOST_REQUIRE_MESSAGE(started.ok(), (started.ok() ? "" : started.error().message));
    while (folder.read("node-1/log").find("ready") == std::string::npos) sched_yield();
  }
  test::ScratchFolder folder;
  DaemonRecord daemon;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(daemon_processes)

BOOST_AUTO_TEST_CASE(are_recognised_and_end_in_order) {
  StandIn stand_in("trap 'exit 0' TERM\necho ready\nwhile :; do sleep 0.05; done\n");
  BOOST_TEST(is_running(stand_in.daemon));
  BOOST_TEST(getsid(static_cast<pid_t>(stand_in.daemon.process)) == stand_in.daemon.process);
  const StopReport report = stop_daemons({stand_in.daemon}, 10s, {});
  BOOST_TEST(report.ended.size() == 1U);
  BOOST_TEST(report.killed.empty());
  BOOST_TEST(!is_running(stand_in.daemon));
}

BOOST_AUTO_TEST_CASE(that_do_not_end_are_killed_with_their_group) {
  StandIn stand_in("trap '' TERM\necho ready\nwhile :; do sleep 0.05; done\n");
  const StopReport report = stop_daemons({stand_in.daemon}, 100ms, {});
  BOOST_TEST(report.killed.size() == 1U);
  BOOST_TEST(!is_running(stand_in.daemon));
}

BOOST_AUTO_TEST_CASE(that_outlive_their_keeper_are_found_by_their_session) {
  StandIn stand_in(
      "trap '' TERM HUP\n$0 -c 'trap \"\" TERM HUP; while :; do sleep 0.05; done' &\n"
      "echo ready\nwait\n");
  (void)stand_in;
  StandIn with_child(
      "\"" + stand_in.folder.file("trouped") +
      "\" -c 'trap \"\" TERM HUP; echo ready; while :; do sleep 0.05; done' &\nwait\n");
  kill(static_cast<pid_t>(with_child.daemon.process), SIGKILL);
  const StopReport report = stop_daemons({with_child.daemon}, 1s, {});
  // Two if the child is just about to start its "sleep" and still has its own name.
  BOOST_TEST(report.leftovers_killed >= 1U);
  BOOST_TEST(report.leftovers_killed <= 2U);
  stop_daemons({stand_in.daemon}, 50ms, {});
}

BOOST_AUTO_TEST_CASE(with_a_reused_number_are_left_alone) {
  StandIn stand_in("trap 'exit 0' TERM\necho ready\nwhile :; do sleep 0.05; done\n");
  DaemonRecord older = stand_in.daemon;
  older.start_ticks -= 1;  // recorded before this process was born
  const StopReport report = stop_daemons({older}, 1s, {});
  BOOST_TEST(report.absent.size() == 1U);
  BOOST_TEST(report.leftovers_killed == 0U);
  BOOST_TEST(is_running(stand_in.daemon));
  stop_daemons({stand_in.daemon}, 10s, {});
}

BOOST_AUTO_TEST_CASE(of_another_program_are_left_alone) {
  DaemonRecord self;
  self.node = "self";
  self.process = getpid();
  BOOST_TEST(!is_running(self));
}

BOOST_AUTO_TEST_CASE(a_port_in_use_is_named) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  BOOST_REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  BOOST_REQUIRE(listen(listener, 1) == 0);
  BOOST_REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const uint16_t port = ntohs(address.sin_port);
  const Result<void> busy = check_port_free(port);
  BOOST_REQUIRE(!busy.ok());
  BOOST_TEST((busy.error().code == ErrorCode::kAlreadyExists));
  BOOST_TEST(busy.error().message.find(std::to_string(port)) != std::string::npos);
  close(listener);
  BOOST_TEST(check_port_free(port).ok());
}

BOOST_AUTO_TEST_SUITE_END()
