// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/coded_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/strategy/shards.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {
namespace {

constexpr fabric::Tag kCoded = 20;

}  // namespace

codec::CodecContext codec_context(const Context& context, params::Layout layout) {
  const std::string& optimiser = context.optimiser.name;
  return {.layout = std::move(layout),
          .seed = context.seed,
          .rank = static_cast<std::uint32_t>(context.endpoint.rank()),
          .momentum = optimiser == "momentum" || optimiser == "nesterov" ? context.optimiser.momentum : 0,
          .nesterov = optimiser == "nesterov"};
}

CodedSum::CodedSum(const Context& context, collective::AllReduceOptions options)
    : context_(context), workers_(context.roles.worker_group()), options_(options) {
  if (context.codec != "fp32") codec_ = codec::make_codec(context.codec, codec_context(context, parameters_of(context.layout)));
}

Status CodedSum::add_up(std::span<float> values, double epoch) {
  if (!codec_) return collective::all_reduce(context_.endpoint, workers_, values, options_);
  codec_->set_progress(epoch);
  codec_->encode(values, bytes_);
  const tensor::Extents shape{static_cast<std::int64_t>(bytes_.size())};
  const tensor::Tensor own = tensor::Tensor::copy_of({.dtype = tensor::DType::u8, .shape = shape, .bytes = bytes_});
  tensor::Channel channel(context_.endpoint, {.tag = kCoded});
  const fabric::Rank self = context_.endpoint.rank();
  for (const fabric::Rank rank : workers_.members()) {
    if (rank != self) STARLING_TRY(channel.send(rank, own.share()));
  }
  decoded_.resize(values.size());
  std::fill(values.begin(), values.end(), 0.0F);
  for (const fabric::Rank rank : workers_.members()) {
    std::optional<std::string> error;
    if (rank == self) {
      error = codec_->decode(own.bytes(), decoded_);
    } else {
      Result<tensor::Incoming> incoming = channel.receive(rank);
      if (!incoming) return incoming.failure();
      error = codec_->decode(incoming->tensor.bytes(), decoded_);
    }
    if (error) {
      return Failure{FailureKind::mismatch, self, rank, fmt::format("an update of rank {}", rank), Duration::zero(), *error};
    }
    add_floats(values, decoded_);
  }
  return {};
}

void CodedSum::list_state(params::StateList& state) {
  if (codec_) state.within("codec", [&](params::StateList& inner) { codec_->list_state(inner); });
}

}  // namespace starling::strategy
