// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/two_stage.h"

namespace starling::optim {
namespace {

OptimiserOptions plain(OptimiserOptions options) {
  options.name = "sgd";
  return options;
}

}  // namespace

TwoStage::TwoStage(const OptimiserOptions& options, const params::Layout& layout)
    : first_(make_optimiser(plain(options), layout)), second_(make_optimiser(options, layout)) {}

void TwoStage::step(std::span<float> weights, std::span<const float> gradient, double lr) {
  (in_first_ ? first_ : second_)->step(weights, gradient, lr);
}

}  // namespace starling::optim
