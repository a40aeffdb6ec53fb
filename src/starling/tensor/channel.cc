// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/tensor/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace starling::tensor {
namespace {

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> floats(std::span<std::byte> bytes) { return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)}; }

void check_rows(const SparseRowsView& rows) {
  STARLING_CHECK(!rows.shape.empty(), std::string("sparse rows of a tensor without dimensions"));
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    STARLING_CHECK(rows.rows[i] > (i == 0 ? -1 : rows.rows[i - 1]) && rows.rows[i] < rows.shape.front(),
                   fmt::format("row {} of sparse rows of {} is {}", i, describe(rows.dtype, rows.shape), rows.rows[i]));
  }
  STARLING_CHECK(byte_count(rows.dtype, rows.shape).has_value(), fmt::format("sparse rows of {}", describe(rows.dtype, rows.shape)));
  Extents shape = rows.shape;
  shape.front() = static_cast<std::int64_t>(rows.rows.size());
  check_memory(rows.dtype, shape, rows.values);
}

void copy_bytes(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

bool Channel::uses_codec(DType dtype, std::size_t values) const {
  return options_.codec != nullptr && dtype == DType::f32 && (options_.codec_values == 0 || options_.codec_values == values);
}

Failure Channel::mismatch(fabric::Rank peer, std::string detail) const {
  return Failure{FailureKind::mismatch, endpoint_.rank(), peer, fmt::format("a tensor with tag {} from rank {}", options_.tag, peer),
                 Duration::zero(),      std::move(detail)};
}

Status Channel::send_payload(fabric::Rank to, fabric::Payload payload, fabric::Deadline deadline) {
  payload.set_head(std::as_bytes(std::span(head_)));
  return endpoint_.send(to, options_.tag, std::move(payload), deadline);
}

Status Channel::send_encoded(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp, fabric::Deadline deadline) {
  options_.codec->encode(floats(tensor.bytes), encoded_);
  write_head(Form::encoded, tensor.dtype, tensor.shape, {}, stamp, head_);
  return send_payload(to, fabric::Payload::copy_of(std::span<const std::byte>(encoded_)), deadline);
}

Status Channel::send(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp, fabric::Deadline deadline) {
  check_memory(tensor.dtype, tensor.shape, tensor.bytes);
  if (uses_codec(tensor.dtype, element_count(tensor.shape))) return send_encoded(to, tensor, stamp, deadline);
  write_head(Form::dense, tensor.dtype, tensor.shape, {}, stamp, head_);
  return send_payload(to, fabric::Payload::copy_of(tensor.bytes), deadline);
}

Status Channel::send(fabric::Rank to, Tensor tensor, const params::Stamp& stamp, fabric::Deadline deadline) {
  if (uses_codec(tensor.dtype(), tensor.size())) return send_encoded(to, tensor.view(), stamp, deadline);
  check_memory(tensor.dtype(), tensor.shape(), tensor.bytes());
  write_head(Form::dense, tensor.dtype(), tensor.shape(), {}, stamp, head_);
  return send_payload(to, tensor.take_payload(), deadline);
}

Status Channel::lend(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp, fabric::Deadline deadline) {
  check_memory(tensor.dtype, tensor.shape, tensor.bytes);
  if (uses_codec(tensor.dtype, element_count(tensor.shape))) return send_encoded(to, tensor, stamp, deadline);
  write_head(Form::dense, tensor.dtype, tensor.shape, {}, stamp, head_);
  return send_payload(to, fabric::Payload::borrow(tensor.bytes, nullptr), deadline);
}

Status Channel::send(fabric::Rank to, const SparseRowsView& rows, const params::Stamp& stamp, fabric::Deadline deadline) {
  check_rows(rows);
  write_head(Form::sparse, rows.dtype, rows.shape, rows.rows, stamp, head_);
  return send_payload(to, fabric::Payload::copy_of(rows.values), deadline);
}

Outgoing Channel::make_ready(const TensorView& tensor, const params::Stamp& stamp) {
  check_memory(tensor.dtype, tensor.shape, tensor.bytes);
  Outgoing outgoing;
  const bool coded = uses_codec(tensor.dtype, element_count(tensor.shape));
  if (coded) options_.codec->encode(floats(tensor.bytes), encoded_);
  outgoing.payload_ = fabric::Payload::copy_of(coded ? std::span<const std::byte>(encoded_) : tensor.bytes);
  write_head(coded ? Form::encoded : Form::dense, tensor.dtype, tensor.shape, {}, stamp, outgoing.head_);
  return outgoing;
}

Status Channel::send(fabric::Rank to, const Outgoing& outgoing, fabric::Deadline deadline) {
  fabric::Payload payload = outgoing.payload_.share();
  payload.set_head(std::as_bytes(std::span(outgoing.head_)));
  return endpoint_.send(to, options_.tag, std::move(payload), deadline);
}

bool Channel::offer(fabric::Rank to, const Outgoing& outgoing) {
  fabric::Payload payload = outgoing.payload_.share();
  payload.set_head(std::as_bytes(std::span(outgoing.head_)));
  return endpoint_.offer(to, options_.tag, std::move(payload));
}

Status Channel::read(const fabric::Message& message, Header& header) const {
  const std::optional<std::string> error = read_head(message.payload, header);
  if (!error) return {};
  return mismatch(message.source, fmt::format("rank {} sent {} bytes that are no tensor ({}), rank {} expected one", message.source,
                                              message.payload.total_bytes(), *error, endpoint_.rank()));
}

Status Channel::decode(const fabric::Message& message, const Header& header, std::span<float> values) {
  const std::optional<std::string> error = options_.codec->decode(message.payload.bytes(), values);
  if (!error) return {};
  return mismatch(message.source, fmt::format("rank {} sent {}, which the codec {} of rank {} cannot decode: {}", message.source,
                                              header.describe(), options_.codec->describe(), endpoint_.rank(), *error));
}

Status Channel::check_codec(const fabric::Message& message, const Header& header) const {
  if (header.form != Form::encoded) return {};
  if (options_.codec == nullptr) {
    return mismatch(message.source, fmt::format("rank {} sent {}, rank {} has no codec on this channel", message.source, header.describe(),
                                                endpoint_.rank()));
  }
  if (options_.codec_values == 0 || element_count(header.shape) == options_.codec_values) return {};
  return mismatch(message.source, fmt::format("rank {} sent {}, rank {} expected {} values through {}", message.source, header.describe(),
                                              endpoint_.rank(), options_.codec_values, options_.codec->describe()));
}

Result<Incoming> Channel::parse(fabric::Message message) {
  Header header;
  STARLING_TRY(read(message, header));
  STARLING_TRY(check_codec(message, header));
  Incoming incoming{.source = message.source, .stamp = std::move(header.stamp)};
  if (header.form == Form::encoded) {
    // The values of a codec may be far more than the bytes that came, so that only here can memory run out by what somebody sent.
    try {
      incoming.tensor = Tensor::allocate(header.dtype, header.shape);
    } catch (const std::bad_alloc&) {
      return mismatch(message.source,
                      fmt::format("rank {} sent {}, rank {} has no memory for it", message.source, header.describe(), endpoint_.rank()));
    }
    STARLING_TRY(decode(message, header, incoming.tensor.writable_as<float>()));
    return incoming;
  }
  message.payload.set_head({});
  Extents value_shape = header.value_shape();
  Tensor values = Tensor::from_payload(header.dtype, std::move(value_shape), std::move(message.payload));
  if (header.form == Form::dense) {
    incoming.tensor = std::move(values);
  } else {
    incoming.sparse =
        SparseRows{.dtype = header.dtype, .shape = std::move(header.shape), .rows = std::move(header.rows), .values = std::move(values)};
  }
  return incoming;
}

Result<Incoming> Channel::receive(fabric::Rank from, fabric::Deadline deadline) {
  return receive(fabric::Filter{.source = from}, deadline);
}

Result<Incoming> Channel::receive(const fabric::Filter& filter, fabric::Deadline deadline) {
  fabric::Filter ours = filter;
  ours.tag = options_.tag;
  Result<fabric::Message> message = endpoint_.receive(ours, deadline);
  if (!message) return message.failure();
  return parse(std::move(*message));
}

Result<params::Stamp> Channel::receive_into(fabric::Rank from, const MutableTensorView& to, fabric::Deadline deadline) {
  check_memory(to.dtype, to.shape, to.bytes);
  Result<fabric::Message> message = endpoint_.receive(fabric::from(from, options_.tag), deadline);
  if (!message) return message.failure();
  Header header;
  STARLING_TRY(read(*message, header));
  if (header.dtype != to.dtype || header.shape != to.shape) {
    return mismatch(message->source, fmt::format("rank {} sent {}, rank {} expected {}", message->source, header.describe(),
                                                 endpoint_.rank(), describe(to.dtype, to.shape)));
  }
  STARLING_TRY(check_codec(*message, header));
  const std::span<const std::byte> bytes = message->payload.bytes();
  if (header.form == Form::encoded) {
    STARLING_TRY(decode(*message, header, floats(to.bytes)));
  } else if (header.form == Form::dense) {
    copy_bytes(bytes, to.bytes.data());
  } else if (!header.rows.empty()) {
    const std::size_t row_bytes = bytes.size() / header.rows.size();
    for (std::size_t i = 0; i < header.rows.size(); ++i) {
      copy_bytes(bytes.subspan(i * row_bytes, row_bytes), to.bytes.data() + static_cast<std::size_t>(header.rows[i]) * row_bytes);
    }
  }
  return std::move(header.stamp);
}

std::optional<Result<Incoming>> Channel::poll(fabric::Rank from) {
  std::optional<fabric::Message> message = endpoint_.poll(fabric::from(from, options_.tag));
  if (!message) return std::nullopt;
  return parse(std::move(*message));
}

Pending Channel::begin_receive(fabric::Rank from) { return {*this, from}; }

bool Pending::ready() {
  if (!arrived_ && !used_up_) arrived_ = channel_->poll(from_);
  return arrived_.has_value();
}

Result<Incoming> Pending::wait(fabric::Deadline deadline) {
  STARLING_CHECK(!used_up_, fmt::format("a pending receive from rank {} was waited for twice", from_));
  used_up_ = true;
  if (!arrived_) return channel_->receive(from_, deadline);
  Result<Incoming> result = std::move(*arrived_);
  arrived_.reset();
  return result;
}

}  // namespace starling::tensor
