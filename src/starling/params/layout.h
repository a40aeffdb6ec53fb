// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Names for the parts of a model's flat vector. All weights of a model are one contiguous vector of floats, its gradient another; a
// layout says which part of them is which tensor. Strategies, codecs and optimisers see spans of floats and a layout, never a
// framework.
//
//   Layout layout;
//   layout.add("dense1.weight", {120, 400});
//   layout.add("norm1.mean", {120}, SliceKind::buffer);
//   std::span<float> weight = layout.part(weights, layout.slices()[0]);
//
// Parameters come first, buffers (state that is not trained by gradient, such as the running statistics of batch norm) after them:
// weights has size() floats, and its first parameter_count() are what the gradient has. Copyable; equal if all slices are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::params {

enum class SliceKind { parameter, buffer };

struct Slice {
  std::string name{};
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;  // In floats, from the start of the flat vector.
  std::size_t size = 0;    // The product of the shape.
  SliceKind kind = SliceKind::parameter;

  bool operator==(const Slice&) const = default;
};

class Layout {
 public:
  // Appends a slice, and returns it; the reference is good until the next one. Precondition (checked): the name is new, all extents are
  // positive, and no parameter comes after a buffer.
  const Slice& add(std::string name, std::vector<std::int64_t> shape, SliceKind kind = SliceKind::parameter);

  const std::vector<Slice>& slices() const { return slices_; }

  // The slice of that name, or nullptr.
  const Slice* find(const std::string& name) const;

  std::size_t size() const { return size_; }                        // Floats in the weights.
  std::size_t parameter_count() const { return parameter_count_; }  // Floats in the gradient.

  // The part of a flat vector that a slice names.
  template <class T>
  static std::span<T> part(std::span<T> flat, const Slice& slice) {
    return flat.subspan(slice.offset, slice.size);
  }

  bool operator==(const Layout&) const = default;

 private:
  std::vector<Slice> slices_;
  std::size_t size_ = 0;
  std::size_t parameter_count_ = 0;
};

// "conv1.weight [6, 1, 5, 5]"
std::string describe(const Slice& slice);

// Why `actual` is not `expected`, naming the first slice that differs; empty if they are equal. For checkpoints and peers of another model.
std::string difference(const Layout& expected, const Layout& actual);

}  // namespace starling::params
