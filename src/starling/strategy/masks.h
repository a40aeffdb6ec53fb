// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which worker has how much of a say in which weight. Worker k has a diagonal matrix E_k, and models x_1, …, x_P are merged into
//
//   x = Σ E_k x_k + R x_before,    Σ E_k + R = I
//
// (Bahi et al.). R is what nobody owns: those weights stay as they are. E_k = I/P is the mean of all models, as in FedAvg; where every
// weight belongs to one worker at most, each E_k has ones for its own, and the merge is a copy.
//
//   Masks masks(4, {Mask({0, 1, 3}, {1, 1, 0.5F}), Mask({2, 3}, {1, 0.5F})});
//   masks.merge(parts, model);                // parts[k] has a float for each of the indices of worker k.
//
// A worker's vector, its part, has the components that its matrix does not leave out, in ascending order.
//
// Thread-safety: that of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::strategy {

// The diagonal of one E_k. A component is owned alone if its value is 1, else shared.
class Mask {
 public:
  Mask() = default;
  // What is not in the list is 0. Precondition (checked): as many values as indices, which ascend; values above 0, at most 1.
  Mask(std::vector<std::uint32_t> indices, std::vector<float> values);
  // value × I, for models of this size. Takes no memory.
  static Mask uniform(std::size_t size, float value);

  std::size_t size() const { return size_; }  // Of the part.
  std::uint32_t index(std::size_t position) const { return all_ ? static_cast<std::uint32_t>(position) : indices_[position]; }
  float value(std::size_t position) const { return all_ ? value_ : values_[position]; }

  // How many components of the part are shared, and where in it the i-th of them is.
  std::size_t shared_size() const { return all_ ? (value_ < 1 ? size_ : 0) : shared_.size(); }
  std::size_t shared(std::size_t i) const { return all_ ? i : shared_[i]; }

  // The components of a model that are in the part.
  void take(std::span<const float> model, std::span<float> part) const;
  // Puts those of the part that are owned alone into a model.
  void place(std::span<const float> part, std::span<float> model) const;
  // The shared components alone, one after the other: of a model, or of a part; and back into a part.
  void take_shared(std::span<const float> model, std::span<float> shared) const;
  void copy_shared(std::span<const float> part, std::span<float> shared) const;
  void write_shared(std::span<const float> shared, std::span<float> part) const;

 private:
  void check_sizes(std::size_t part, std::size_t model) const;

  bool all_ = false;
  float value_ = 1;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> indices_{};
  std::vector<float> values_{};
  std::vector<std::uint32_t> shared_{};
};

class Masks {
 public:
  // For models of `size` floats, a mask per worker. Precondition (checked): for every component the values add up to 1, or nobody has it.
  Masks(std::size_t size, std::vector<Mask> masks);

  // E_k = I/P for everybody.
  static Masks uniform(std::size_t size, int workers);

  int workers() const { return static_cast<int>(masks_.size()); }
  const Mask& operator[](int worker) const { return masks_[static_cast<std::size_t>(worker)]; }

  std::size_t size() const { return has_owner_.size(); }
  std::size_t owned() const { return owned_; }  // Components that anybody has; the others are those of R.

  // model = Σ E_k x_k + R model, added up in the order of the workers. What is owned alone is copied, bit for bit.
  void merge(std::span<const std::vector<float>> parts, std::span<float> model) const;
  // The same for shared components alone.
  void mix(std::span<const std::vector<float>> parts, std::span<float> model) const;

  // R model = 0.
  void clear_unowned(std::span<float> model) const;

 private:
  std::vector<Mask> masks_;
  std::vector<std::uint8_t> has_owner_;  // By component.
  std::size_t owned_ = 0;
};

}  // namespace starling::strategy
