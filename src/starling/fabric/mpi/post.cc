// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/post.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "starling/base/error.h"
#include "starling/fabric/mpi/call.h"

namespace starling::fabric::mpi {

struct Post::Header {
  std::uint64_t post;
  Kind kind;
  Tag tag;
  std::uint64_t sequence;
  Taken taken;
  std::uint64_t head_bytes;
  std::uint64_t body_bytes;
  std::uint64_t place;  // Of the body among the sender's blocks, and 1; 0 if it is not there.

  // Both sides decide alike what is in the envelope.
  bool has_head() const { return sizeof(Header) + head_bytes <= kEnvelopeBytes; }
  bool has_body() const { return has_head() && sizeof(Header) + head_bytes + body_bytes <= kEnvelopeBytes; }
};

Post::Post(const Members& members, bool share, std::uint64_t number)
    : members_(members), number_(number), incoming_(static_cast<std::size_t>(members.size)) {
  if (share && members.here.size() > 1) share_blocks();
  for (Posted& posted : posted_) post(posted);
}

Post::~Post() {
  for (Posted& posted : posted_) {
    MPI_Cancel(&posted.request);
    MPI_Wait(&posted.request, MPI_STATUS_IGNORE);
  }
}

void Post::share_blocks() {
  const auto own = static_cast<std::size_t>(members_.number_here[static_cast<std::size_t>(members_.rank)]);
  places_.resize(members_.here.size());
  files_.resize(members_.here.size());
  files_[own] = std::make_shared<const MemoryFile>(MemoryFile::make(kBlocksBytes));
  blocks_.emplace(files_[own]->bytes());
  const MemoryFile::Place place = files_[own]->place();
  call("MPI_Allgather", MPI_Allgather(&place, sizeof(place), MPI_BYTE, places_.data(), sizeof(place), MPI_BYTE, members_.host));
}

const std::shared_ptr<const MemoryFile>& Post::blocks_of(Rank source) {
  const auto number = static_cast<std::size_t>(members_.number_here[static_cast<std::size_t>(source)]);
  if (!files_[number]) files_[number] = std::make_shared<const MemoryFile>(MemoryFile::open(places_[number], kBlocksBytes));
  return files_[number];
}

void Post::post(Posted& posted) {
  call("MPI_Irecv", MPI_Irecv(posted.envelope.data(), static_cast<int>(posted.envelope.size()), MPI_BYTE, MPI_ANY_SOURCE, kEnvelopeTag,
                              members_.all, &posted.request));
}

void Post::send(Rank to, Kind kind, Tag tag, Payload payload, std::uint64_t sequence, const Taken& taken) {
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Outgoing>());
    free_.push_back(pool_.back().get());
  }
  Outgoing& outgoing = *free_.back();
  free_.pop_back();
  outgoing.payload = std::move(payload);
  const std::span<const std::byte> head = outgoing.payload.head();
  const std::span<const std::byte> body = outgoing.payload.bytes();
  Header header{.post = number_,
                .kind = kind,
                .tag = tag,
                .sequence = sequence,
                .taken = taken,
                .head_bytes = head.size(),
                .body_bytes = body.size(),
                .place = 0};
  if (!header.has_body() && blocks_ && members_.is_here(to)) {
    if (const std::optional<std::uint64_t> place = blocks_->put(body)) header.place = *place + 1;
  }
  std::byte* at = outgoing.envelope.data();
  const auto put = [&](const void* from, std::size_t size) {
    if (size > 0) std::memcpy(at, from, size);
    at += size;
  };
  put(&header, sizeof(header));
  if (header.has_head()) put(head.data(), head.size());
  if (header.has_body()) put(body.data(), body.size());
  start(outgoing, outgoing.envelope.data(), static_cast<std::size_t>(at - outgoing.envelope.data()), to, kEnvelopeTag);
  if (!header.has_head()) start(outgoing, head.data(), head.size(), to, kPartTag);
  if (!header.has_body() && header.place == 0) start(outgoing, body.data(), body.size(), to, kPartTag);
  look_at_sent();
}

void Post::start(Outgoing& outgoing, const std::byte* bytes, std::size_t size, Rank to, int tag) {
  for (std::size_t begin = 0; begin < size; begin += kPieceBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    call("MPI_Isend",
         MPI_Isend(bytes + begin, static_cast<int>(std::min(kPieceBytes, size - begin)), MPI_BYTE, to, tag, members_.all, &request));
    requests_.push_back(request);
    of_request_.push_back(&outgoing);
    ++outgoing.open;
  }
}

void Post::look_at_sent() {
  if (requests_.empty()) return;
  done_.resize(requests_.size());
  int count = 0;
  call("MPI_Testsome", MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), MPI_STATUSES_IGNORE));
  if (count <= 0) return;  // MPI_UNDEFINED is negative.
  for (int i = 0; i < count; ++i) {
    Outgoing& outgoing = *of_request_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])];
    if (--outgoing.open > 0) continue;
    outgoing.payload = Payload();
    free_.push_back(&outgoing);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    of_request_[kept++] = of_request_[i];
  }
  requests_.resize(kept);
  of_request_.resize(kept);
}

void Post::progress(std::vector<Arrival>& arrivals) {
  look_at_sent();
  receive_envelopes(arrivals);
  if (incoming_count_ > 0) hand_over_complete(arrivals);
}

// Messages fill the buffers in the order in which these were posted.
void Post::receive_envelopes(std::vector<Arrival>& arrivals) {
  for (;;) {
    Posted& posted = posted_[next_posted_];
    int done = 0;
    MPI_Status status;
    call("MPI_Test", MPI_Test(&posted.request, &done, &status));
    if (done == 0) return;
    int size = 0;
    call("MPI_Get_count", MPI_Get_count(&status, MPI_BYTE, &size));
    open(posted, status.MPI_SOURCE, static_cast<std::size_t>(size), arrivals);
    post(posted);
    next_posted_ = (next_posted_ + 1) % posted_.size();
  }
}

void Post::open(const Posted& posted, Rank source, std::size_t size, std::vector<Arrival>& arrivals) {
  Header header;
  STARLING_CHECK(size >= sizeof(header), std::string("an envelope is shorter than its header"));
  std::memcpy(&header, posted.envelope.data(), sizeof(header));
  if (header.post != number_) return;
  const std::byte* at = posted.envelope.data() + sizeof(header);
  Incoming incoming;
  incoming.arrival.kind = header.kind;
  incoming.arrival.taken = header.taken;
  Message& message = incoming.arrival.message;
  message.source = source;
  message.tag = header.tag;
  message.sequence = header.sequence;
  message.payload =
      header.place > 0 ? HostBlocks::take(blocks_of(source), header.place - 1, header.body_bytes) : buffers_->allocate(header.body_bytes);
  if (header.has_head()) {
    message.payload.set_head({at, header.head_bytes});
    at += header.head_bytes;
  } else {
    incoming.head.resize(header.head_bytes);
    expect(incoming, incoming.head.data(), incoming.head.size(), source);
  }
  if (header.place == 0) {
    const std::span<std::byte> body = message.payload.writable();
    if (!header.has_body()) {
      expect(incoming, body.data(), body.size(), source);
    } else if (!body.empty()) {
      std::memcpy(body.data(), at, body.size());
    }
  }
  std::deque<Incoming>& queue = incoming_[static_cast<std::size_t>(source)];
  if (queue.empty() && incoming.requests.empty()) {
    arrivals.push_back(std::move(incoming.arrival));
    return;
  }
  queue.push_back(std::move(incoming));
  ++incoming_count_;
}

void Post::expect(Incoming& incoming, std::byte* bytes, std::size_t size, Rank source) {
  for (std::size_t begin = 0; begin < size; begin += kPieceBytes) {
    call("MPI_Irecv", MPI_Irecv(bytes + begin, static_cast<int>(std::min(kPieceBytes, size - begin)), MPI_BYTE, source, kPartTag,
                                members_.all, &incoming.requests.emplace_back(MPI_REQUEST_NULL)));
  }
}

void Post::hand_over_complete(std::vector<Arrival>& arrivals) {
  for (std::deque<Incoming>& queue : incoming_) {
    while (!queue.empty()) {
      Incoming& first = queue.front();
      int done = 1;
      if (!first.requests.empty()) {
        call("MPI_Testall", MPI_Testall(static_cast<int>(first.requests.size()), first.requests.data(), &done, MPI_STATUSES_IGNORE));
      }
      if (done == 0) break;
      if (!first.head.empty()) first.arrival.message.payload.set_head(first.head);
      arrivals.push_back(std::move(first.arrival));
      queue.pop_front();
      --incoming_count_;
    }
  }
}

}  // namespace starling::fabric::mpi
