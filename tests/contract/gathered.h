// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the contract suite needs where ranks live in several processes of one machine.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling {

// Lists become, in every process, the lists of all processes one after the other, by rank. Every process has one rank, and gives the same
// lists.
class Gathering {
 public:
  template <class List>
  void add(List& list) {
    using Value = typename List::value_type;
    static_assert(std::is_trivially_copyable_v<Value>);
    own_.push_back(fabric::Payload::copy_of(std::as_bytes(std::span<const Value>(list.data(), list.size()))));
    append_.push_back([&list](std::span<const std::byte> bytes) {
      for (std::size_t i = 0; i < bytes.size() / sizeof(Value); ++i) {
        Value value;
        std::memcpy(&value, bytes.data() + i * sizeof(Value), sizeof(Value));
        list.push_back(value);
      }
    });
    list.clear();
  }

  void run(fabric::Fabric& fabric) {
    const fabric::RunReport report = fabric.run([&](fabric::Endpoint& endpoint) -> Status {
      for (std::size_t i = 0; i < own_.size(); ++i) {
        for (fabric::Rank to = 0; to < endpoint.size(); ++to) STARLING_TRY(endpoint.send(to, kTag, own_[i].share()));
        for (fabric::Rank source = 0; source < endpoint.size(); ++source) {
          Result<fabric::Message> message = endpoint.receive(fabric::from(source, kTag));
          if (!message) return message.failure();
          append_[i](message->payload.bytes());
        }
      }
      return {};
    });
    EXPECT_EQ(report.summary(), "");
  }

 private:
  static constexpr fabric::Tag kTag = 77;
  std::vector<fabric::Payload> own_;
  std::vector<std::function<void(std::span<const std::byte>)>> append_;
};

// One process at a time.
class GatheringLock {
 public:
  GatheringLock() : file_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) { ::flock(file_, LOCK_EX); }
  GatheringLock(const GatheringLock&) = delete;
  GatheringLock& operator=(const GatheringLock&) = delete;
  ~GatheringLock() { ::close(file_); }

 private:
  int file_;
};

}  // namespace starling
