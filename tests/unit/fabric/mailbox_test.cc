// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "starling/base/random.h"

namespace starling::fabric {
namespace {

Message message(Rank source, Tag tag, std::uint64_t sequence, std::size_t size_bytes = 0) {
  return {source, tag, Payload::allocate(size_bytes), sequence};
}

TEST(Mailbox, CountsMessagesAndBytesBySender) {
  Mailbox mailbox(3);
  mailbox.push(message(1, 0, 0, 10));
  mailbox.push(message(1, 0, 1, 20));
  mailbox.push(message(2, 0, 0, 5));
  EXPECT_EQ(mailbox.messages_from(1), 2U);
  EXPECT_EQ(mailbox.bytes_from(1), 30U);
  (void)mailbox.take(from(1));
  EXPECT_EQ(mailbox.messages_from(1), 1U);
  EXPECT_EQ(mailbox.bytes_from(1), 20U);
  mailbox.clear();
  EXPECT_EQ(mailbox.messages_from(2), 0U);
  EXPECT_FALSE(mailbox.has(anything()));
}

// Against a plain list that is searched from the front.
TEST(Mailbox, AgreesWithAPlainList) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream random(seed, 0, "mailbox");
    Mailbox mailbox(4);
    struct Entry {
      Rank source;
      Tag tag;
      std::uint64_t sequence;
    };
    std::list<Entry> reference;
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (random.uniform() < 0.5) {
        const Entry entry{static_cast<Rank>(random.below(4)), static_cast<Tag>(random.below(3)), i};
        reference.push_back(entry);
        mailbox.push(message(entry.source, entry.tag, entry.sequence));
        continue;
      }
      Filter filter;
      if (random.uniform() < 0.5) filter.source = static_cast<Rank>(random.below(4));
      if (random.uniform() < 0.5) filter.tag = static_cast<Tag>(random.below(3));
      const auto expected =
          std::find_if(reference.begin(), reference.end(), [&](const Entry& entry) { return filter.matches(entry.source, entry.tag); });
      EXPECT_EQ(mailbox.has(filter), expected != reference.end());
      const std::optional<Message> taken = mailbox.take(filter);
      ASSERT_EQ(taken.has_value(), expected != reference.end());
      if (!taken) continue;
      EXPECT_EQ(taken->sequence, expected->sequence);
      EXPECT_EQ(taken->source, expected->source);
      reference.erase(expected);
    }
  }
}

}  // namespace
}  // namespace starling::fabric
