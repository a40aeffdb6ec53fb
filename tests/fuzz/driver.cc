// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The short form of fuzzing, for compilers without libFuzzer: a bounded number of random changes to the seeds, the same ones for the same
// seed.
//   NAME [SEED [INPUTS]]         change and try INPUTS inputs
//   NAME --write-seeds FOLDER    write the seeds as files, for libFuzzer to start from
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "fuzz/fuzz.h"
#include "starling/base/random.h"
#include "unit/data/made_files.h"

namespace starling::fuzz {
namespace {

std::size_t place_in(const Bytes& bytes, RandomStream& random) { return static_cast<std::size_t>(random.below(bytes.size())); }

// One small change: of a bit, a byte or four bytes; a piece cut out, doubled or taken from another input; the end cut off.
void change(Bytes& bytes, const std::vector<Bytes>& others, RandomStream& random) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<std::uint8_t>(random.next_u32()));
    return;
  }
  const std::size_t place = place_in(bytes, random);
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(place);
  const std::size_t length = std::min<std::size_t>(bytes.size() - place, 1 + random.below(16));
  const Bytes piece(at, at + static_cast<std::ptrdiff_t>(length));
  const Bytes& other = others[static_cast<std::size_t>(random.below(others.size()))];
  constexpr std::uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff};
  switch (random.below(7)) {
    case 0:
      *at = static_cast<std::uint8_t>(*at ^ 1U << random.below(8));
      break;
    case 1:
      *at = static_cast<std::uint8_t>(random.next_u32());
      break;
    case 2:
      for (std::size_t i = place; i < std::min(bytes.size(), place + 4); ++i) bytes[i] = kTelling[random.below(5)];
      break;
    case 3:
      bytes.erase(at, at + static_cast<std::ptrdiff_t>(length));
      break;
    case 4:
      bytes.insert(at, piece.begin(), piece.end());
      break;
    case 5:
      for (std::size_t i = place; i < std::min(place + length, other.size()); ++i) bytes[i] = other[i];
      break;
    default:
      bytes.resize(place);
  }
}

bool passes(const Bytes& bytes, std::uint64_t seed, std::uint64_t number) {
  try {
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    return true;
  } catch (const std::exception& error) {
    std::printf("input %llu of seed %llu: %s\n", static_cast<unsigned long long>(number), static_cast<unsigned long long>(seed),
                error.what());
    return false;
  }
}

int run(std::uint64_t seed, std::uint64_t inputs) {
  std::printf("seed %llu, %llu inputs\n", static_cast<unsigned long long>(seed), static_cast<unsigned long long>(inputs));
  std::fflush(stdout);  // So that it is there even if an input ends the program.
  const std::vector<Bytes> all = seeds();
  for (const Bytes& bytes : all) {
    if (!passes(bytes, seed, 0)) return 1;
  }
  RandomStream random(seed, 0, "fuzz");
  for (std::uint64_t number = 1; number <= inputs; ++number) {
    Bytes bytes = all[static_cast<std::size_t>(random.below(all.size()))];
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) change(bytes, all, random);
    if (!passes(bytes, seed, number)) return 1;
  }
  return 0;
}

int write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const Bytes& bytes : seeds()) data::write(folder / ("seed" + std::to_string(number++)), bytes);
  return 0;
}

}  // namespace
}  // namespace starling::fuzz

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--write-seeds") return starling::fuzz::write_seeds(argv[2]);
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const std::uint64_t inputs = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 3000;
  return starling::fuzz::run(seed, inputs);
}
