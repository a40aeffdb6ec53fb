// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Accumulated gradient normalisation (Hermans, Spanakis, Moeckel, ACML 2017): a worker explores k steps on its own and commits their mean,
// so that the size of what a server applies does not grow with k.
#include "starling/strategy/delta_server.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class Agn final : public DeltaServer {
 public:
  explicit Agn(Context context) : DeltaServer(std::move(context)), k_(static_cast<std::uint64_t>(this->context().settings.integer("k"))) {}

  Status exchange(const Step& step) override {
    if (step.samples == 0) return {};
    if (!step.finite) {
      context().account.dropped(context().account.produced(), ledger::kNotFinite);
      return {};
    }
    step_locally(step);
    return steps_since_push() == k_ ? push_delta(step, 1.0 / static_cast<double>(k_), true) : Status{};
  }

 private:
  // A commit before its time is the mean of the steps it has.
  double flush_factor() const override { return 1.0 / static_cast<double>(steps_since_push()); }

  std::uint64_t k_;
};

}  // namespace

Description describe_agn() {
  Description description;
  description.name = "agn";
  description.summary = "accumulated gradient normalisation: k local steps, then their mean is committed to the server";
  description.rule =
      "worker   k local optimizer steps from w_before to w_after; push (w_after - w_before)/k; w = reply\n"
      "server   w = w + what was pushed, on arrival";
  description.traffic = "every k steps per worker: S messages up with n floats in all, S down with n floats";
  description.paper = "Hermans, Spanakis and Moeckel 2017.";
  description.options = {Option::integer("k", 2, 1, 1'000'000'000, "local steps in a commit"), staleness_lr_option()};
  description.sends = Sends::deltas;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<Agn>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
