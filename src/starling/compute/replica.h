// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A replica is one copy of the model: "given a batch, put the gradient of the loss at my weights into my gradient vector; evaluate".
// Everything else (who exchanges what, how weights move) is outside. Backends: native (no framework), torch (LibTorch), and your own:
// derive from Replica; examples/own_replica is a whole one.
//
//   std::unique_ptr<Replica> replica = make_replica("lenet5", Problem::of(dataset.train), seed, rank);
//   double loss = replica->compute_gradient(batch);
//   for (std::size_t i = 0; i < replica->gradient().size(); ++i) replica->weights()[i] -= 0.01f * replica->gradient()[i];
//
// Thread-safety: a replica belongs to one rank, and computes on the thread that calls it and on no other. Different replicas may be
// used at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "starling/data/samples.h"
#include "starling/params/layout.h"

namespace starling::compute {

// What evaluating some samples gave. Sums, so that batches can be added up.
struct Evaluation {
  double loss_sum = 0;      // Over samples.
  std::size_t correct = 0;  // Samples whose largest output is that of their class; 0 where answers are numbers.
  std::size_t samples = 0;

  Evaluation& operator+=(const Evaluation& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    samples += other.samples;
    return *this;
  }
};

class Replica {
 public:
  Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  virtual ~Replica() = default;

  // What the flat vectors mean; never changes.
  virtual const params::Layout& layout() const = 0;

  // layout().size() floats: parameters, then buffers. The caller may write them between any two calls. The address never changes.
  virtual std::span<float> weights() = 0;

  // layout().parameter_count() floats, overwritten by compute_gradient; the caller may use them as scratch until then.
  virtual std::span<float> gradient() = 0;

  // Puts the gradient of the mean loss over the batch, at the current weights, into gradient(); updates buffers in weights(); returns the
  // mean loss. The same weights, buffers and batch (with its number) give the same bits. Does not allocate once it has seen the largest
  // batch. The loss may be infinite or NaN; that is for the caller to judge. Precondition: the batch has the shape of the model.
  virtual double compute_gradient(const data::Batch& batch) = 0;

  // Loss and correct answers with the model in its evaluating form (no dropout, running statistics). `predictions` is empty, or gets the
  // predicted class of every sample of the batch. Changes neither weights nor gradient.
  virtual Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t> predictions) = 0;

  // Operations of the forward pass for one sample, two per multiply-add; element-wise layers are not counted.
  virtual double operations_per_sample() const = 0;

  // "native: conv 6 5x5 pad 2, …", for logs and run directories.
  virtual std::string describe() const = 0;
};

}  // namespace starling::compute
