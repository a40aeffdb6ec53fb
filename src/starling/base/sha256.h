// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// SHA-256 of bytes, as the lower-case hexadecimal text that sha256sum prints.
//
//   Sha256 hash;
//   hash.add(std::as_bytes(std::span(weights)));
//   std::string text = hash.hex_digest();
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace starling {

// Not thread-safe; different objects may be used at the same time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  // Of everything added so far. Ends the hash: nothing may be asked of it or added afterwards (checked).
  std::string hex_digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace starling
