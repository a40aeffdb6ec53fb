// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a part of a program (a strategy, a codec) wants to find again after a restart: named vectors of floats and named numbers. A part
// lists its own memory; whoever saves reads it, whoever restores writes it.
//
//   void TopK::list_state(params::StateList& state) {
//     state.add("residual", residual_);
//     state.add("steps", steps_);
//   }
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace starling::params {

// Views into whoever listed it, valid as long as that is and is not resized.
class StateList {
 public:
  struct Vector {
    std::string name;
    std::span<float> values;
  };
  struct Number {
    std::string name;
    std::uint64_t* value;
  };

  // An empty vector is nothing to find again.
  void add(const std::string& name, std::span<float> values) {
    if (!values.empty()) vectors_.push_back({prefix_ + name, values});
  }
  void add(const std::string& name, std::uint64_t& number) { numbers_.push_back({prefix_ + name, &number}); }

  // Everything that `list` adds is named "prefix/name".
  template <class List>
  void within(const std::string& prefix, List list) {
    const std::string outer = prefix_;
    prefix_ += prefix + "/";
    list(*this);
    prefix_ = outer;
  }

  const std::vector<Vector>& vectors() const { return vectors_; }
  const std::vector<Number>& numbers() const { return numbers_; }

 private:
  std::string prefix_;
  std::vector<Vector> vectors_;
  std::vector<Number> numbers_;
};

}  // namespace starling::params
