// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A perceptron cut into subnets: its hidden units are dealt to the workers at random, and each worker has what lies between its own units
// (Yuan et al.). Everything follows from the layout of the model:
//
//   dense1.weight [h1, in]    the rows of a worker's units of the first hidden layer
//   dense2.weight [h2, h1]    the block (its h2 units) x (its h1 units)
//   dense3.weight [out, h2]   the columns of its h2 units
//   vectors after a weight    (bias, scale and shift of a norm): those of its units; of the outputs, all: they are everybody's
//
// Inputs and outputs are everybody's. So the parts are disjoint but for the vectors of inputs and outputs, in which everybody has a say of
// 1/P, and the blocks of dense2.weight between units of different workers belong to nobody.
//
//   Subnets subnets(layout, 4, seed);
//   Masks masks = subnets.deal(round);             // masks[2] says which weights of the model are those of worker 2.
//   subnets.part_layout(2);                        // The same in every round.
//
// Thread-safety: const and usable by everybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "starling/params/layout.h"
#include "starling/strategy/masks.h"

namespace starling::strategy {

class Subnets {
 public:
  // Throws UserError, with the reason and what to do, if the model is no perceptron with a hidden layer, has buffers, or has a hidden layer
  // of fewer units than there are workers. One worker has the whole model.
  Subnets(const params::Layout& layout, int workers, std::uint64_t seed);

  // Units of every hidden layer that a worker has, in any round: as even as can be, the first workers one more.
  std::vector<int> widths(int worker) const;

  // The names of the model, the extents of the part.
  params::Layout part_layout(int worker) const;

  // Functions of seed and round: all, or that of one worker, which takes a part of the memory.
  Masks deal(std::uint64_t round) const;
  Mask mask(int worker, std::uint64_t round) const;

 private:
  // A slice of the model: its rows and columns belong to the units of a layer each, where 0 is the inputs and the last the outputs. A
  // vector has one column, of the inputs.
  struct Grid {
    std::size_t slice = 0;
    std::size_t row_layer = 0;
    std::size_t column_layer = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;
  };
  using Hands = std::vector<std::vector<std::uint32_t>>;  // By layer: the units of one worker, ascending.

  void add_slice(std::size_t index);
  void check_hidden_layers() const;
  bool is_hidden(std::size_t layer) const { return layer > 0 && layer + 1 < units_.size(); }
  std::vector<Hands> deal_units(std::uint64_t round) const;
  Mask mask_of(const Hands& hands) const;

  params::Layout layout_;
  int workers_;
  std::uint64_t seed_;
  std::vector<std::size_t> units_;  // By layer.
  std::vector<Grid> grids_;
};

}  // namespace starling::strategy
