// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "starling/base/aligned_floats.h"
#include "starling/base/error.h"
#include "starling/base/shared_floats.h"
#include "starling/fabric/mpi/call.h"
#include "starling/fabric/mpi/memory_file.h"

namespace starling::fabric::mpi {
namespace {

// MPI counts in int, and a process that works on one large piece hears nothing else.
constexpr std::size_t kPieceFloats = std::size_t{1} << 18;

class FileMemory final : public WindowMemory {
 public:
  explicit FileMemory(std::size_t size_bytes) : file_(MemoryFile::make(size_bytes)) {}
  MemoryFile::Place place() const { return file_.place(); }

 private:
  MemoryFile file_;
};

class AttachedMemory final : public WindowMemory {
 public:
  AttachedMemory(World& world, std::size_t floats) : world_(world), floats_(std::max<std::size_t>(1, floats)) {
    call("MPI_Win_attach", MPI_Win_attach(world.one_sided(), floats_.data(), static_cast<MPI_Aint>(floats_.size() * sizeof(float))));
  }
  // The run has ended, and nobody reaches for it any more.
  ~AttachedMemory() override {
    if (world_.is_broken() || std::uncaught_exceptions() > 0) {
      // Others may still reach for it.
      world_.keep_until_the_end(std::move(floats_));
      return;
    }
    const World::Lock lock = world_.lock();
    MPI_Win_detach(world_.one_sided(), floats_.data());
  }
  std::uint64_t address() const {
    MPI_Aint address = 0;
    call("MPI_Get_address", MPI_Get_address(floats_.data(), &address));
    return static_cast<std::uint64_t>(address);
  }

 private:
  World& world_;
  std::vector<float> floats_;
};

class MpiWindow : public Window {
 public:
  MpiWindow(World& world, const OpenedWindow& window) : world_(world), name_(window.name), home_(window.home), size_(window.floats) {}

  const std::string& name() const override { return name_; }
  Rank home() const override { return home_; }
  std::size_t size() const override { return size_; }

 protected:
  World& world() { return world_; }
  Status check(std::size_t offset, std::size_t count) {
    STARLING_CHECK(offset <= size_ && count <= size_ - offset,
                   fmt::format("floats {} to {} of window '{}', which has {}", offset, offset + count, name_, size_));
    const World::Lock lock = world_.lock();
    return check_home();
  }
  // With the lock held.
  Status check_home() const {
    if (world_.state(home_) == PeerState::alive) return {};
    return Failure{FailureKind::peer_lost, world_.rank(),     home_, fmt::format("window '{}' at rank {}", name_, home_),
                   Duration::zero(),       "its home is gone"};
  }

 private:
  World& world_;
  std::string name_;
  Rank home_;
  std::size_t size_;
};

class SharedWindow final : public MpiWindow {
 public:
  SharedWindow(World& world, const OpenedWindow& window)
      : MpiWindow(world, window), file_(MemoryFile::open(window.place, size() * sizeof(float))) {
    floats_ = {reinterpret_cast<float*>(file_.bytes().data()), size()};
  }

  Status read(std::size_t offset, std::span<float> to, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, to.size()));
    load_shared(floats_.subspan(offset, to.size()), to);
    return {};
  }
  Status write(std::size_t offset, std::span<const float> from, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, from.size()));
    store_shared(floats_.subspan(offset, from.size()), from);
    return {};
  }
  Status add(std::size_t offset, std::span<const float> values, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, values.size()));
    add_shared(floats_.subspan(offset, values.size()), values);
    return {};
  }
  Result<float> fetch_add(std::size_t offset, float value, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, 1));
    return fetch_add_shared(floats_[offset], value);
  }
  std::span<float> shared_memory() override { return floats_; }

 private:
  MemoryFile file_;
  std::span<float> floats_;
};

class OneSidedWindow final : public MpiWindow {
 public:
  OneSidedWindow(World& world, const OpenedWindow& window) : MpiWindow(world, window), address_(static_cast<MPI_Aint>(window.address)) {}

  Status read(std::size_t offset, std::span<float> to, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, to.size()));
    return in_pieces(offset, to.size(), [&](std::size_t begin, int count, MPI_Aint at) {
      call("MPI_Get_accumulate", MPI_Get_accumulate(nullptr, 0, MPI_FLOAT, to.data() + begin, count, MPI_FLOAT, home(), at, count,
                                                    MPI_FLOAT, MPI_NO_OP, world().one_sided()));
    });
  }
  Status write(std::size_t offset, std::span<const float> from, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, from.size()));
    return accumulate(offset, from, MPI_REPLACE);
  }
  Status add(std::size_t offset, std::span<const float> values, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, values.size()));
    return accumulate(offset, values, MPI_SUM);
  }
  Result<float> fetch_add(std::size_t offset, float value, Deadline /*deadline*/) override {
    STARLING_TRY(check(offset, 1));
    float before = 0;
    STARLING_TRY(in_pieces(offset, 1, [&](std::size_t /*begin*/, int /*count*/, MPI_Aint at) {
      call("MPI_Fetch_and_op", MPI_Fetch_and_op(&value, &before, MPI_FLOAT, home(), at, MPI_SUM, world().one_sided()));
    }));
    return before;
  }

 private:
  Status accumulate(std::size_t offset, std::span<const float> values, MPI_Op operation) {
    return in_pieces(offset, values.size(), [&](std::size_t begin, int count, MPI_Aint at) {
      call("MPI_Accumulate",
           MPI_Accumulate(values.data() + begin, count, MPI_FLOAT, home(), at, count, MPI_FLOAT, operation, world().one_sided()));
    });
  }

  // Each piece has taken effect when the next begins. Whoever waits for the lock hardly gets it between them, so what has to be done every
  // now and then is done here.
  template <class Piece>
  Status in_pieces(std::size_t offset, std::size_t size, Piece piece) {
    for (std::size_t begin = 0; begin < size; begin += kPieceFloats) {
      const World::Lock lock = world().lock();
      world().keep_in_touch();
      STARLING_TRY(check_home());
      world().operate(home(), [&] {
        piece(begin, static_cast<int>(std::min(kPieceFloats, size - begin)),
              address_ + static_cast<MPI_Aint>((offset + begin) * sizeof(float)));
        call("MPI_Win_flush", MPI_Win_flush(home(), world().one_sided()));
      });
    }
    return {};
  }

  MPI_Aint address_;
};

}  // namespace

std::unique_ptr<WindowMemory> make_window_memory(World& world, OpenedWindow& window) {
  if (world.windows_are_shared()) {
    auto memory = std::make_unique<FileMemory>(window.floats * sizeof(float));
    window.place = memory->place();
    return memory;
  }
  auto memory = std::make_unique<AttachedMemory>(world, window.floats);
  window.address = memory->address();
  return memory;
}

std::shared_ptr<Window> open_window(World& world, const OpenedWindow& window) {
  if (world.windows_are_shared()) return std::make_shared<SharedWindow>(world, window);
  return std::make_shared<OneSidedWindow>(world, window);
}

}  // namespace starling::fabric::mpi
