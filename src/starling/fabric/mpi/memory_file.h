// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Memory that processes of one host can share without having planned it together: a file without a name, in memory, which others open by
// way of /proc, and which goes with the last process that has it. Pages that nobody has touched take no memory.
//
//   const MemoryFile file = MemoryFile::make(1 << 20);              // Tell the other process file.place() and the size.
//   const MemoryFile same = MemoryFile::open(place, 1 << 20);      // There.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::fabric::mpi {

class MemoryFile {
 public:
  // Where other processes find one that was made, as long as it lives there.
  struct Place {
    std::int64_t process = 0;
    std::int64_t descriptor = -1;
  };

  // Filled with zeros. Throws std::runtime_error if the system gives none; so does open(), if the two processes do not see each other in
  // /proc, as in containers of their own.
  static MemoryFile make(std::size_t size_bytes);
  static MemoryFile open(const Place& place, std::size_t size_bytes);

  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  Place place() const;  // Of one that was made, not opened.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit MemoryFile(int descriptor) : descriptor_(descriptor) {}
  void map(std::size_t size_bytes);

  int descriptor_ = -1;
  std::span<std::byte> bytes_{};
};

}  // namespace starling::fabric::mpi
