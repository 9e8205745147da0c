#include "actors/logic/view_fence.h"

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

namespace troupe {
namespace {

using Installed = ViewFence::Installed;
const Incarnation kSelf{1}, kUpstream{2}, kBatcher{3}, kZombie{4};
const std::vector<Incarnation> kSenders{kUpstream, kBatcher};

BOOST_AUTO_TEST_SUITE(view_fence)

BOOST_AUTO_TEST_CASE(accepts_only_the_view_the_life_and_the_senders_it_was_given) {
  ViewFence fence(kSelf);
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 1) == FenceVerdict::kNewerView));
  BOOST_TEST((fence.check(ViewNumber{0}, kUpstream, kSelf, 1) == FenceVerdict::kStranger));
  BOOST_TEST((fence.install(ViewNumber{5}, kSenders) == Installed::kInstalled));
  BOOST_TEST((fence.check(ViewNumber{5}, kUpstream, kSelf, 1) == FenceVerdict::kAccept));
  BOOST_TEST((fence.check(ViewNumber{4}, kUpstream, kSelf, 2) == FenceVerdict::kOldView));
  BOOST_TEST((fence.check(ViewNumber{6}, kUpstream, kSelf, 2) == FenceVerdict::kNewerView));
  BOOST_TEST((fence.check(ViewNumber{5}, kUpstream, kZombie, 2) == FenceVerdict::kWrongReceiver));
  BOOST_TEST((fence.check(ViewNumber{5}, kZombie, kSelf, 2) == FenceVerdict::kStranger));
  // None of the dropped ones used up a number of the edge.
  BOOST_TEST((fence.check(ViewNumber{5}, kUpstream, kSelf, 2) == FenceVerdict::kAccept));
  BOOST_TEST(fence.count(FenceVerdict::kAccept) == 2U);
  BOOST_TEST(fence.count(FenceVerdict::kNewerView) == 2U);
  BOOST_TEST(fence.count(FenceVerdict::kStranger) == 2U);
  BOOST_TEST(fence.dropped() == 6U);
}

BOOST_AUTO_TEST_CASE(edges_count_for_themselves) {
  ViewFence fence(kSelf);
  fence.install(ViewNumber{1}, kSenders);
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 1) == FenceVerdict::kAccept));
  BOOST_TEST((fence.check(ViewNumber{1}, kBatcher, kSelf, 1) == FenceVerdict::kAccept));
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 1) == FenceVerdict::kRepeat));
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 0) == FenceVerdict::kRepeat));
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 4) == FenceVerdict::kGap));
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 3) == FenceVerdict::kRepeat));
  BOOST_TEST((fence.check(ViewNumber{1}, kUpstream, kSelf, 5) == FenceVerdict::kAccept));
  BOOST_TEST(usable(FenceVerdict::kGap));
  BOOST_TEST(!usable(FenceVerdict::kRepeat));
}

BOOST_AUTO_TEST_CASE(a_repeated_install_does_not_open_the_door_to_repeats) {
  ViewFence fence(kSelf);
  fence.install(ViewNumber{2}, kSenders);
  BOOST_TEST((fence.check(ViewNumber{2}, kUpstream, kSelf, 1) == FenceVerdict::kAccept));
  BOOST_TEST((fence.install(ViewNumber{2}, kSenders) == Installed::kRepeat));
  BOOST_TEST((fence.install(ViewNumber{1}, kSenders) == Installed::kOld));
  BOOST_TEST((fence.view() == ViewNumber{2}));
  BOOST_TEST((fence.check(ViewNumber{2}, kUpstream, kSelf, 1) == FenceVerdict::kRepeat));
  fence.install(ViewNumber{3}, std::vector{kUpstream});
  BOOST_TEST((fence.check(ViewNumber{3}, kUpstream, kSelf, 1) == FenceVerdict::kAccept));
  BOOST_TEST((fence.check(ViewNumber{3}, kBatcher, kSelf, 1) == FenceVerdict::kStranger));
}

BOOST_AUTO_TEST_CASE(every_verdict_has_a_name_of_its_own) {
  std::set<std::string> names;
  for (size_t verdict = 0; verdict < kFenceVerdicts; ++verdict)
    names.insert(to_string(static_cast<FenceVerdict>(verdict)));
  BOOST_TEST(names.size() == kFenceVerdicts);
  BOOST_TEST(!names.contains("unknown"));
  BOOST_TEST(to_string(FenceVerdict::kOldView) == std::string("old view"));
  BOOST_TEST(to_string(static_cast<FenceVerdict>(kFenceVerdicts)) == std::string("unknown"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
