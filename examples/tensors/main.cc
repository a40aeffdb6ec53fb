// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// LibTorch tensors and plain arrays between ranks, without any strategy. Nothing is copied on the way to rank 1: it looks at rank 0's
// matrix.
#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "starling/fabric/threads/threads_fabric.h"
#include "starling/tensor/channel.h"

using namespace starling;
using tensor::DType;

const std::map<torch::Dtype, DType> kTypes{{torch::kFloat32, DType::f32},   {torch::kFloat64, DType::f64}, {torch::kFloat16, DType::f16},
                                           {torch::kBFloat16, DType::bf16}, {torch::kInt32, DType::i32},   {torch::kInt64, DType::i64},
                                           {torch::kUInt8, DType::u8}};

// The matrix lives until whoever has it last lets go of it.
tensor::Tensor from_torch(const torch::Tensor& matrix) {
  const std::span bytes(static_cast<const std::byte*>(matrix.data_ptr()), matrix.nbytes());
  return tensor::Tensor::adopt({kTypes.at(matrix.scalar_type()), matrix.sizes().vec(), bytes}, [matrix] {});
}

// Looks at the memory that arrived, which is to be left as it is.
torch::Tensor to_torch(tensor::Tensor tensor) {
  const auto type = std::ranges::find(kTypes, tensor.dtype(), [](const auto& entry) { return entry.second; })->first;
  const auto shared = std::make_shared<tensor::Tensor>(std::move(tensor));
  return torch::from_blob(
      const_cast<std::byte*>(shared->bytes().data()), shared->shape(), [shared](void*) {}, type);
}

Status program(fabric::Endpoint& endpoint) {
  tensor::Channel channel(endpoint, {.tag = 1});
  if (endpoint.rank() == 1) {
    Result<tensor::Incoming> incoming = channel.receive(0);
    if (!incoming) return incoming.failure();
    std::cout << "rank 1 has " << incoming->tensor.describe() << " of step " << incoming->stamp.id.number << "\n";
    const torch::Tensor matrix = to_torch(std::move(incoming->tensor));
    return channel.send(0, from_torch((matrix * 2).sum(1).to(torch::kFloat32)));
  }
  const torch::Tensor matrix = torch::arange(6, torch::kFloat64).reshape({2, 3}).contiguous();
  STARLING_TRY(channel.send(1, from_torch(matrix), {.id = {.origin = 0, .number = 7}}));
  std::vector<float> sums(2);  // No LibTorch on this side of the answer.
  const Result<params::Stamp> stamp = channel.receive_into(1, tensor::MutableTensorView::of(std::span(sums)));
  if (!stamp) return stamp.failure();
  std::cout << "rank 0 has " << sums[0] << " and " << sums[1] << "\n";
  return {};
}

int main() {
  const fabric::RunReport report = fabric::ThreadsFabric({.ranks = 2}).run(program);
  std::cerr << report.summary();
  return report.ok() ? 0 : 1;
}
