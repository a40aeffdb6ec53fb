// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace starling::fabric::mpi {
namespace {

std::runtime_error system_error(const char* what) { return std::runtime_error(fmt::format("{} failed: {}", what, std::strerror(errno))); }

}  // namespace

MemoryFile MemoryFile::make(std::size_t size_bytes) {
  MemoryFile file(::memfd_create("starling", MFD_CLOEXEC));
  if (file.descriptor_ < 0) throw system_error("memfd_create");
  if (::ftruncate(file.descriptor_, static_cast<off_t>(size_bytes)) != 0) throw system_error("making a file in memory larger");
  file.map(size_bytes);
  return file;
}

MemoryFile MemoryFile::open(const Place& place, std::size_t size_bytes) {
  MemoryFile file(::open(fmt::format("/proc/{}/fd/{}", place.process, place.descriptor).c_str(), O_RDWR | O_CLOEXEC));
  if (file.descriptor_ < 0) throw system_error("opening the memory of another process");
  // Beyond the end of a file that is not the right one there is no memory, only a signal.
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) throw system_error("looking at the memory of another process");
  if (static_cast<std::size_t>(status.st_size) < size_bytes) throw std::runtime_error("the memory of another process is too small");
  file.map(size_bytes);
  ::close(std::exchange(file.descriptor_, -1));  // The mapping stays.
  return file;
}

void MemoryFile::map(std::size_t size_bytes) {
  if (size_bytes == 0) return;
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) throw system_error("mapping a file in memory");
  bytes_ = {static_cast<std::byte*>(memory), size_bytes};
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

MemoryFile::~MemoryFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

MemoryFile::Place MemoryFile::place() const { return {::getpid(), descriptor_}; }

}  // namespace starling::fabric::mpi
