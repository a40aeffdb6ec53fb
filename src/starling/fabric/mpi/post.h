// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Messages of any size between the processes of a communicator, in order between any two, without ever blocking in MPI.
//
// What travels. An envelope, at most kEnvelopeBytes, small enough for MPI to send without asking the receiver: a fixed header, and as much
// of the message's head and body as fits whole. A body that does not fit goes through memory of the host (host_blocks.h), if the receiver
// is on the same one and there is room; all else follows as messages of its own, sent from where it lies and received into the memory that
// the message will have. Envelopes are received into buffers that lie ready; a message is handed over when all of it is here and everything
// from the same sender before it has been.
//
// Lifetimes. What is sent stays alive, in an entry of a pool, until MPI says that it is done with it.
//
// Thread-safety: none. Its owner has one lock around this and every other use of MPI (MPI_THREAD_SERIALIZED).
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "starling/fabric/message.h"
#include "starling/fabric/mpi/buffer_pool.h"
#include "starling/fabric/mpi/host_blocks.h"
#include "starling/fabric/mpi/members.h"

namespace starling::fabric::mpi {

enum class Kind : std::uint32_t {
  message = 1,    // Of the program.
  taken,          // Only says how much has been taken; all do.
  taken_wanted,   // The sender waits for room.
  departed,       // The sender's rank is gone; its last message.
  window_opened,  // A window has opened at the sender.
  pulse,          // The sender is there, and this is how far it has got.
};

// How much of what one rank has sent to another has been taken from the mailbox there, in all.
struct Taken {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t run = 0;  // Of the fabric: each counts anew.
};

struct Arrival {
  Kind kind = Kind::message;
  Message message{};
  Taken taken{};  // As of when it was sent: what the sender has taken of what this rank sent.
};

class Post {
 public:
  // Made by all processes of a host together. `members` outlives it. With `share`, those of this host can open each other's memory
  // (memory_file.h). `number` is the same in all processes and another for each post that they have after each other: what a former one has
  // sent late is dropped.
  Post(const Members& members, bool share, std::uint64_t number);
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;
  // Nothing may be under way.
  ~Post();

  void send(Rank to, Kind kind, Tag tag, Payload payload, std::uint64_t sequence, const Taken& taken);

  // Looks what MPI has done. What has arrived whole is appended to `arrivals`.
  void progress(std::vector<Arrival>& arrivals);

  // Something large is under way in one direction or the other: then MPI needs to be looked at often.
  bool is_busy() const { return !requests_.empty() || incoming_count_ > 0; }
  bool all_sent() const { return requests_.empty(); }

 private:
  static constexpr std::size_t kEnvelopeBytes = 3968;               // Below the 4 KiB that Open MPI sends eagerly inside a host.
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // MPI counts in int.
  static constexpr std::size_t kBlocksBytes = std::size_t{64} << 20;
  static constexpr int kPosted = 16;
  static constexpr int kEnvelopeTag = 1;
  static constexpr int kPartTag = 2;

  struct Header;
  struct Outgoing {
    alignas(8) std::array<std::byte, kEnvelopeBytes> envelope;
    Payload payload{};
    int open = 0;  // Requests that are not done.
  };
  struct Incoming {
    Arrival arrival{};
    std::vector<std::byte> head{};
    std::vector<MPI_Request> requests{};
  };
  struct Posted {
    alignas(8) std::array<std::byte, kEnvelopeBytes> envelope;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void start(Outgoing& outgoing, const std::byte* bytes, std::size_t size, Rank to, int tag);
  void look_at_sent();
  void receive_envelopes(std::vector<Arrival>& arrivals);
  void open(const Posted& posted, Rank source, std::size_t size, std::vector<Arrival>& arrivals);
  void expect(Incoming& incoming, std::byte* bytes, std::size_t size, Rank source);
  void hand_over_complete(std::vector<Arrival>& arrivals);
  void post(Posted& posted);
  void share_blocks();
  const std::shared_ptr<const MemoryFile>& blocks_of(Rank source);

  const Members& members_;
  const std::uint64_t number_;
  std::vector<MemoryFile::Place> places_;                 // Of the blocks of this host's processes; empty if they do not share.
  std::vector<std::shared_ptr<const MemoryFile>> files_;  // Those that were needed so far; likewise by number on this host.
  std::optional<HostBlocks> blocks_;
  std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  std::vector<std::unique_ptr<Outgoing>> pool_;
  std::vector<Outgoing*> free_;
  std::vector<MPI_Request> requests_;  // Of what is being sent,
  std::vector<Outgoing*> of_request_;  // and whose each is.
  std::vector<int> done_;
  std::array<Posted, kPosted> posted_;
  std::size_t next_posted_ = 0;
  std::vector<std::deque<Incoming>> incoming_;  // By source; the first is incomplete.
  std::size_t incoming_count_ = 0;
};

}  // namespace starling::fabric::mpi
