// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What all strategies with servers have in common: the flat vector is split over S servers, workers push updates to and pull weights from
// all of them, and every pull says the version of every part. A strategy decides when to push what (the worker's side: exchange()) and what
// a server does with it (the server's side: apply()).
//
//   worker                                   server s
//   start     first worker: its weights ────▶ keeps its part
//             pull ─────────────────────────▶ reply: part, version, contents
//   exchange  push update (and pull) ───────▶ apply(); reply
//   finish    finish ───────────────────────▶ when all have come: reply to all
//
// Messages from one worker arrive in order, so a finish comes after all pushes. A worker lends its gradient to the servers while it waits
// for their reply, and a reply shares the server's memory, which the server copies only if it has to write while a worker still reads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/strategy/messages.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/staleness_lr.h"
#include "starling/strategy/strategy.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {

class ParameterServer : public Strategy {
 public:
  explicit ParameterServer(Context context);
  ~ParameterServer() override;

  Status start(std::span<float> weights, std::span<const float> model) override;
  Status finish(std::span<float> weights, std::span<float> model) override;
  Status peek(std::span<const float> weights, std::span<float> model) override;
  Status start_serving() override;
  Status serve() override;
  void list_state(params::StateList& state) override;

 protected:
  // Workers.

  // Sends every server its part of the update; without a reply.
  Status push(const params::UpdateId& id, std::span<const float> update, const Step& step);
  // Gets the weights of all servers. `clock` is an update that was produced and not pushed, where servers keep clocks.
  Status pull(std::span<float> weights, const params::UpdateId& clock = {});
  // Both in one round trip, without a copy of the update where there is no codec. A worker that is lost meanwhile cannot wait until the
  // servers are done with it, so the memory must outlive this object: as the replica's gradient does, or because `keeper` owns it.
  Status push_and_pull(const params::UpdateId& id, std::span<const float> update, const Step& step, std::span<float> weights,
                       const std::shared_ptr<const void>& keeper = nullptr);
  // What is left to push before the end, such as a part of an accumulated update.
  virtual Status flush(std::span<const float> weights) {
    (void)weights;
    return {};
  }
  virtual void list_worker_state(params::StateList& state) { (void)state; }

  // Servers: this server's part of everything.
  struct Update {
    fabric::Rank worker = 0;
    std::span<const float> values;  // Readable until apply() returns.
    const params::Stamp& stamp;
    std::uint64_t staleness = 0;  // In versions.
    double lr = 0;                // Of the worker's step, made smaller for staleness if the options say so.
    double scale = 1;             // By how much it was made smaller.
    bool first_stage = false;
  };
  virtual void apply(const Update& update, std::span<float> weights) = 0;
  // A worker has been given these weights.
  virtual void pulled(fabric::Rank worker, const tensor::Tensor& weights) { (void)worker, (void)weights; }
  // Whether the reply to this worker, whose clock (its last update's number) is given, must wait for others. `clocks` are those of the
  // workers that are at work.
  virtual bool must_wait(std::uint64_t clock, std::span<const std::uint64_t> clocks) const {
    (void)clock, (void)clocks;
    return false;
  }
  // If only one worker's update may be applied now, whose; others' wait. `at_work` tells who is there and has not finished.
  virtual std::optional<fabric::Rank> whose_turn(std::span<const char> at_work) {
    (void)at_work;
    return std::nullopt;
  }
  // Whether this update, which has arrived, must wait before it is applied, until another reply is sent. A strategy that makes any wait
  // pushes only together with pulls: a worker has one update here at most.
  virtual bool must_stall(const params::UpdateId& id, std::span<const char> at_work) const {
    (void)id, (void)at_work;
    return false;
  }
  std::uint64_t clock_of(fabric::Rank worker) const { return clocks_[static_cast<std::size_t>(worker)]; }
  // A push is answered with the weights from before it was applied.
  virtual bool answers_with_old_weights() const { return false; }
  virtual void list_server_state(params::StateList& state) { (void)state; }

  bool is_server() const { return !context().roles.is_worker(rank()); }

  const params::Layout& part_layout() const { return part_layout_; }  // Servers: of this server's part.
  std::size_t parameter_count() const { return context().layout.parameter_count(); }

 private:
  struct Part;  // A worker's view of one server.
  struct Stalled {
    tensor::Incoming incoming;
    fabric::Tag tag;
    std::uint64_t arrival;  // In the order of all that came.
  };

  Status receive_replies(std::span<float> weights);
  Status send_to_all(fabric::Tag tag);
  void add_part(int server);
  Status receive_first_weights();
  Status handle(fabric::Message message);
  Status take_up(tensor::Incoming incoming, fabric::Tag tag);
  void apply_push(const tensor::Incoming& incoming);
  Status reply(fabric::Rank worker, tensor::Tensor weights, bool to_compute_on = true);
  Status do_what_can_be_done();
  std::optional<Stalled> next_to_apply();
  bool update_those_at_work();

  NewMessages new_messages_;
  std::vector<Part> parts_;  // Workers.
  params::Stamp request_{};

  // Servers.
  params::Layout part_layout_;
  std::unique_ptr<codec::Codec> decoder_;
  std::optional<tensor::Channel> incoming_;
  std::optional<tensor::Channel> replies_;
  tensor::Tensor weights_;
  std::string staleness_rule_;
  std::uint64_t version_ = 0;
  std::uint64_t arrivals_ = 0;
  std::vector<std::uint64_t> clocks_;            // By worker, as everything below.
  std::vector<std::uint64_t> clocks_at_work_;    // Only of those at work.
  std::vector<char> finished_;                   // Not vector<bool>, which is no vector.
  std::vector<char> at_work_;                    // There, and not finished.
  std::vector<char> waiting_;                    // For a reply.
  std::vector<std::optional<Stalled>> stalled_;  // Pushes that wait for their turn.
};

}  // namespace starling::strategy
