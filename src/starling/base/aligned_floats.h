// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A buffer of floats that starts at a cache line; a large one asks for large pages, because going through weights by columns touches many.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace starling {

class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(std::size_t size) { grow(size); }
  AlignedFloats(AlignedFloats&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedFloats& operator=(AlignedFloats&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // Makes room for at least `size` floats, all zero; the old ones are lost. Does nothing if there is room already, so that a buffer that
  // has reached its size costs no more allocation.
  void grow(std::size_t size) {
    if (size <= size_) return;
    size_ = 0;
    data_.reset();  // First, so that old and new are not there at once.
    const std::size_t bytes = size * sizeof(float);
    const std::size_t alignment = bytes >= kLargePage ? kLargePage : kAlignment;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = ::operator new (rounded, std::align_val_t{alignment});
    if (alignment == kLargePage) static_cast<void>(::madvise(memory, rounded, MADV_HUGEPAGE));  // A wish; without it all works the same.
    std::memset(memory, 0, bytes);
    data_ = {static_cast<float*>(memory), Free{alignment}};
    size_ = size;
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<float> span() { return {data_.get(), size_}; }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;
  struct Free {
    Free() : alignment(kAlignment) {}
    explicit Free(std::size_t value) : alignment(value) {}
    std::size_t alignment;
    void operator()(float* data) const { ::operator delete (data, std::align_val_t{alignment}); }
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace starling
