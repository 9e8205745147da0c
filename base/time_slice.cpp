#include "base/time_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace troupe {
namespace {

// The kernel's struct sched_attr, as of its first version; glibc 2.36 does not declare it.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;  // SCHED_OTHER
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // for SCHED_OTHER: the slice
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

std::atomic<bool> realtime_allowed{true};

}  // namespace

void allow_realtime(bool allowed) {
  realtime_allowed = allowed;
}

bool go_first() {
  if (!realtime_allowed) return false;
  sched_param lowest{};
  lowest.sched_priority = sched_get_priority_min(SCHED_RR);
  return ::sched_setscheduler(0, SCHED_RR, &lowest) == 0;
}

bool set_time_slice(Duration slice) {
  SchedulingAttributes attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime_ns = static_cast<uint64_t>(slice.count());
  return ::syscall(SYS_sched_setattr, 0, &attributes, 0U) == 0;
}

}  // namespace troupe
