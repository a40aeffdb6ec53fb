// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Delay-compensated ASGD (Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017, equations 10 and
// 14): a gradient that comes late is corrected to first order towards what it would have been at the server's weights now, with g⊙g in
// place of the Hessian. The compensated gradient then goes through the run's optimiser; with plain SGD that is the paper's rule. Constant
// λ, or adaptive: λ_t = λ₀ / sqrt(MS + ε), MS = m MS + (1 - m) g².
#include <cmath>
#include <vector>

#include "starling/strategy/gradient_server.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

constexpr float kEpsilon = 1e-7F;

class DcAsgd final : public GradientServer {
 public:
  explicit DcAsgd(Context context)
      : GradientServer(std::move(context)),
        lambda_(static_cast<float>(this->context().settings.number("lambda"))),
        adaptive_(this->context().settings.boolean("adaptive")),
        decay_(static_cast<float>(this->context().settings.number("decay"))) {
    if (!is_server()) return;
    backups_.resize(static_cast<std::size_t>(this->context().roles.workers));
    compensated_.resize(part_layout().parameter_count());
    if (adaptive_) mean_square_.resize(compensated_.size());
  }

 private:
  void apply(const Update& update, std::span<float> weights) override {
    std::span<const float> gradient = update.values;
    if (lambda_ != 0) {  // At 0 the plain server's bits, signs of zeros included.
      compensate(gradient, weights, backups_[static_cast<std::size_t>(update.worker)].as<float>());
      gradient = compensated_;
    }
    step(update, gradient, weights);
  }

  void compensate(std::span<const float> gradient, std::span<const float> weights, std::span<const float> backup) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const float g = gradient[i];
      float lambda = lambda_;
      if (adaptive_) {
        mean_square_[i] = decay_ * mean_square_[i] + (1 - decay_) * g * g;
        lambda /= std::sqrt(mean_square_[i] + kEpsilon);
      }
      compensated_[i] = g + lambda * g * g * (weights[i] - backup[i]);
    }
  }

  // A deep copy, in effect: the server does not write into memory that it shares.
  void pulled(fabric::Rank worker, const tensor::Tensor& weights) override {
    if (lambda_ != 0) backups_[static_cast<std::size_t>(worker)] = weights.share();
  }

  void list_server_state(params::StateList& state) override {
    GradientServer::list_server_state(state);
    if (adaptive_) state.add("mean_square", mean_square_);
    // Backups are not listed: every worker pulls anew when a run goes on.
  }

  float lambda_;
  bool adaptive_;
  float decay_;
  std::vector<tensor::Tensor> backups_;  // On servers, as all below: what each worker computes on.
  std::vector<float> compensated_;
  std::vector<float> mean_square_;
};

}  // namespace

Description describe_dc_asgd() {
  Description description;
  description.name = "dc-asgd";
  description.summary = "asynchronous server that compensates the delay of a gradient to first order";
  description.rule =
      "worker   as async\n"
      "server   on g from worker m: g' = g + lambda g*g*(w - w_bak(m)); w = optimizer step with g'; on a reply to m: w_bak(m) = w\n"
      "         adaptive: lambda / sqrt(MS + 1e-7) in place of lambda, with MS = decay MS + (1 - decay) g*g";
  description.traffic = "as async; a server keeps n/S floats more per worker";
  description.paper = "Zheng et al. 2017. lambda = 0 is async, bit for bit. Useful: about 0.04 constant, 2 adaptive.";
  description.options = {Option::number("lambda", 0.04, 0, 1e6, "strength of the compensation; adaptive: its lambda_0"),
                         Option::boolean("adaptive", false, "divide lambda by the root of a running mean of g*g"),
                         Option::number("decay", 0.95, 0, 0.999999, "m of that mean"), staleness_lr_option()};
  description.sends = Sends::gradients;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<DcAsgd>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
