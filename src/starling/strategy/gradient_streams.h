// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Strategies without a server, in which every worker sends its gradients to some others, and applies at its own replica what they send:
// all-to-all, dogwild and neighbours. They differ in who the others are, and in whether a message may be lost.
//
//   prepare    applies everything that has arrived, in the order in which it came; then the gradient is computed
//   exchange   applies the own gradient at once; sends it to the others
//   finish     tells the others that this was all; applies what comes until all have said so
//
// Messages between two ranks keep their order, so what has not come when the end of a stream has come never will: it is entered as lost.
//
// A worker that finds no room at a peer goes on applying what arrives while it waits. So workers cannot wait for each other in a circle, as
// they could if each held on to what the others had sent it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/strategy.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {

struct StreamOptions {
  std::vector<fabric::Rank> peers{};  // Who gets the gradients of this worker, and whose it gets; ascending, without itself.
  bool offers = false;                // Messages are offered (Endpoint::offer): lost rather than waited for.
  double weight = 1;                  // Of what others send; the own gradient has 1.
};

class GradientStreams : public Strategy {
 public:
  GradientStreams(Context context, StreamOptions options);

  Status start(std::span<float> weights, std::span<const float> model) override;
  Status prepare(std::span<float> weights) override;
  Status exchange(const Step& step) override;
  Status finish(std::span<float> weights, std::span<float> model) override;
  void list_state(params::StateList& state) override;

 protected:
  // A message that is none of a stream's own, while this worker waits for the ends of the streams or looks for gradients.
  virtual Status other_message(fabric::Message message);

 private:
  // A gradient that has come and is entered in the books.
  struct Arrived {
    tensor::Tensor gradient;
    double lr;
    bool first_stage;
  };

  Status drain(std::span<float> weights);
  Status receive(fabric::Message message);
  Status end_of(fabric::Rank peer, const fabric::Payload& payload);
  void apply_arrived(std::span<float> weights);
  void apply(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage);
  Status send(const tensor::Outgoing& outgoing, const params::UpdateId& id, std::span<float> weights);
  Status send_when_there_is_room(FunctionRef<Status(fabric::Deadline)> send, std::span<float> weights);
  params::UpdateId produce();
  bool has_ended(fabric::Rank peer) const;
  std::optional<fabric::Rank> somebody_gone() const;  // Whose stream has not ended.

  StreamOptions options_;
  std::vector<int> places_;  // Of the last update: this worker and those peers that were there when it was made.
  std::unique_ptr<codec::Codec> codec_;
  tensor::Channel channel_;
  std::optional<RunOptimiser> optimiser_;  // Without one: plain SGD.
  std::vector<float> decoded_;             // The own gradient, where a codec changes it.
  std::vector<float> weighted_;            // A gradient of somebody else's, where it counts for less.
  params::Stamp computed_on_{};            // Version and contents of the weights of the gradient that is being computed.
  std::uint64_t version_ = 0;              // Updates applied here.
  std::vector<Arrived> arrived_;
  std::uint64_t finishes_ = 0;                       // Of this worker, the one that goes on included.
  std::map<fabric::Rank, std::uint64_t> ended_;      // By peer: how often its stream has ended.
  std::uint64_t sent_from_ = 1;                      // The number of the first update since the last finish.
  std::vector<std::vector<std::uint64_t>> no_room_;  // By peer, the numbers since then that it had no room for.
  std::vector<std::uint64_t> not_finite_;            // Those that nobody was sent.
};

// All workers but this one.
std::vector<fabric::Rank> others(const Roles& roles, fabric::Rank rank);

// The option `optimizer` of all of them: plain SGD, or the run's optimiser on every replica.
Option stream_optimiser_option(const std::string& standard);

// The option `weight`, and what it says where a worker has so many peers.
Option stream_weight_option();
double stream_weight(const Settings& settings, std::size_t peers);

// What is said at the start: which optimiser it is, where that is not the run's.
std::string stream_opening(const Settings& settings, const Roles& roles, const params::Layout& layout);

}  // namespace starling::strategy
