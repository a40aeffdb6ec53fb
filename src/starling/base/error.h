// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The two kinds of exception Starling throws.
//
// A mistake of the user (a flag, a file, a configuration) is a UserError: one sentence with the value, what is valid and a
// hint; the program prints it and exits with code 2. A broken invariant, a mistake of the program itself, is caught by
// STARLING_CHECK, which stays on in every build. Failures that belong to normal operation (a peer is lost, a wait ran out of
// time) are neither: they are return values, see result.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_broken_invariant(const char* condition, const char* file, int line, const std::string& message);

// The candidate closest to `name` by edit distance as " Did you mean 'x'?", or "" where none is close enough to be meant.
std::string nearest_name_hint(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace starling

// Throws BrokenInvariant when `condition` is false. `message` (a std::string) is built only then.
#define STARLING_CHECK(condition, message)                                           \
  do {                                                                               \
    if (!(condition)) [[unlikely]] {                                                 \
      ::starling::throw_broken_invariant(#condition, __FILE__, __LINE__, (message)); \
    }                                                                                \
  } while (false)
