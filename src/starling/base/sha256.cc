// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "starling/base/error.h"

namespace starling {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool ended = false;

  State() { STARLING_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1, std::string("no SHA-256 here")); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
  STARLING_CHECK(!state_->ended, std::string("this hash has ended"));
  STARLING_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, std::string("SHA-256 failed"));
}

std::string Sha256::hex_digest() {
  STARLING_CHECK(!state_->ended, std::string("this hash has ended"));
  state_->ended = true;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  STARLING_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1, std::string("SHA-256 failed"));
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex_digest();
}

std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

}  // namespace starling
