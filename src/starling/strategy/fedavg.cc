// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Federated averaging (McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017): in every
// round a fraction of the clients trains on its own samples, and all go on from their average, weighted by how many samples each has. There
// is no separate server: every worker learns the average by an all-reduce, to which clients that sit the round out add nothing.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "starling/base/random.h"
#include "starling/strategy/averaging.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class FedAvg final : public Averaging {
 public:
  explicit FedAvg(const Context& context)
      : Averaging(context, static_cast<std::uint64_t>(context.settings.integer("period"))),
        clients_(std::max(1, static_cast<int>(std::lround(context.settings.number("fraction") * context.roles.workers)))) {}

  bool takes_part(std::uint64_t number) override { return is_chosen(rank(), round_of(number)); }

 private:
  double share_of(int worker, std::uint64_t round) const override {
    choose(round);
    if (chosen_[static_cast<std::size_t>(worker)] == 0) return 0;
    double all = 0;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i] != 0) all += static_cast<double>(context().part_samples[i]);
    }
    return static_cast<double>(context().part_samples[static_cast<std::size_t>(worker)]) / all;
  }

  // A client keeps nothing from one round to the next.
  void round_ended() override {
    if (context().settings.boolean("reset")) optimiser().reset();
  }

  bool is_chosen(int worker, std::uint64_t round) const {
    choose(round);
    return chosen_[static_cast<std::size_t>(worker)] != 0;
  }

  // A function of seed and round, so that all workers choose the same and a resumed run goes on with it.
  void choose(std::uint64_t round) const {
    if (round == chosen_round_) return;
    chosen_round_ = round;
    const auto workers = static_cast<std::size_t>(context().roles.workers);
    std::vector<int> order(workers);
    std::iota(order.begin(), order.end(), 0);
    RandomStream stream(context().seed, 0, "fedavg clients");
    constexpr unsigned kWordsPerRound = 24;
    stream.seek(round << kWordsPerRound);
    chosen_.assign(workers, 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(clients_); ++i) {
      std::swap(order[i], order[i + static_cast<std::size_t>(stream.below(workers - i))]);
      chosen_[static_cast<std::size_t>(order[i])] = 1;
    }
  }

  int clients_;
  mutable std::uint64_t chosen_round_ = ~std::uint64_t{0};
  mutable std::vector<char> chosen_;  // In chosen_round_.
};

}  // namespace

Description describe_fedavg() {
  Description description;
  description.name = "fedavg";
  description.summary = "federated averaging: a fraction of the clients trains in each round, averaged by their number of samples";
  description.rule =
      "round    a fraction C of the workers is chosen at random; each of them takes H local steps from w\n"
      "         w = sum over the chosen of (n_j / sum of their n) w_j, with n_j the samples of worker j; all go on from w";
  description.traffic = "every H steps per worker: an all-reduce of n floats; with a codec: P-1 messages of the encoded difference";
  description.paper = "McMahan et al. 2017. The average is formed by an all-reduce instead of a server.";
  description.options = {Option::integer("period", 32, 1, 1'000'000'000, "H: local steps in a round"),
                         Option::number("fraction", 1, 0, 1, "C: the part of the workers that trains in a round, at least one worker"),
                         Option::boolean("reset", true, "begin each round with a new optimizer, as clients without memory do")};
  description.sends = Sends::deltas;
  description.places = Places::workers;
  description.lockstep = true;
  description.resumes_with_other_workers = true;
  description.make = [](const Context& context) { return std::make_unique<FedAvg>(context); };
  return description;
}

}  // namespace starling::strategy
