// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Failures that belong to normal operation, as return values that cannot be ignored by accident.
//
//   Result<Message> message = endpoint.receive(from(3));
//   if (!message) return message.failure();      // "rank 0 waited 30 s for a message with tag 7 from rank 3: ..."
//   use(message->payload);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "starling/base/error.h"
#include "starling/base/time.h"

namespace starling {

enum class FailureKind {
  timeout,    // The deadline passed.
  peer_lost,  // The rank that was awaited is gone, or every rank that could have answered is.
  deadlock,   // Nothing can happen any more; only the simulator can know this, and says so without waiting.
  crashed,    // The calling rank itself was crashed by a fault; it may only unwind.
  mismatch,   // The ranks disagree, for instance about the length of a vector to reduce.
};

const char* to_string(FailureKind kind);

// Who waited, for whom, for what, how long, and why it ended.
struct Failure {
  FailureKind kind = FailureKind::timeout;
  int rank = 0;                        // The rank that reports the failure.
  int peer = -1;                       // The rank that was awaited, or -1 where it was no particular one.
  std::string awaited;                 // "a message with tag 7 from rank 3".
  Duration waited = Duration::zero();  // How long `rank` had waited when it gave up.
  std::string detail;                  // The reason, or a hint; may be empty.

  std::string message() const;
};

// Either a value or a Failure.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}            // NOLINT(google-explicit-constructor): return value;
  Result(Failure failure) : state_(std::move(failure)) {}  // NOLINT(google-explicit-constructor): return failure;

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() {
    STARLING_CHECK(ok(), failure().message());
    return std::get<0>(state_);
  }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

  const Failure& failure() const {
    STARLING_CHECK(!ok(), std::string("asked a successful result for its failure"));
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Failure> state_;
};

// Success, or a Failure. Success costs no allocation.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure)  // NOLINT(google-explicit-constructor): return failure;
      : failure_(std::make_shared<const Failure>(std::move(failure))) {}

  bool ok() const { return failure_ == nullptr; }
  explicit operator bool() const { return ok(); }

  const Failure& failure() const {
    STARLING_CHECK(!ok(), std::string("asked a successful result for its failure"));
    return *failure_;
  }

 private:
  std::shared_ptr<const Failure> failure_;
};

using Status = Result<void>;

}  // namespace starling

// Returns the failure of `expression` from the enclosing function, which itself returns a Status or a Result.
#define STARLING_TRY(expression)                                         \
  do {                                                                   \
    if (auto starling_try_result = (expression); !starling_try_result) { \
      return starling_try_result.failure();                              \
    }                                                                    \
  } while (false)
