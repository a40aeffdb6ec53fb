// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/bounded_http_server.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/stopwatch.h"

namespace starling::cli {
namespace {

constexpr int kLowPriority = 10;  // As `nice` counts: the training goes first.

void lower_priority() { static_cast<void>(::setpriority(PRIO_PROCESS, 0, kLowPriority)); }  // Of the thread that calls it.

// A socket whose request and whose answer have a time in which they must be done with.
class TimedStream : public httplib::Stream {
 public:
  TimedStream(socket_t socket, const HttpLimits& limits) : socket_(socket), limits_(limits) {}

  bool is_readable() const override { return next_ < filled_ || wait(POLLIN, read_seconds()); }
  bool is_writable() const override { return wait(POLLOUT, limits_.answer_seconds - (answering_ ? answering_->seconds() : 0)); }

  ssize_t read(char* data, size_t size) override {
    if (next_ == filled_ && !fill()) return failed_ ? -1 : 0;
    const std::size_t count = std::min(size, filled_ - next_);
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(next_), count, data);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!answering_) answering_.emplace();
    std::size_t sent = 0;
    while (sent < size) {
      if (!is_writable()) return -1;
      const ssize_t count = ::send(socket_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count < 0) return -1;
      sent += static_cast<std::size_t>(count);
    }
    return static_cast<ssize_t>(sent);
  }

  // Whoever asks is on this machine, by an address that is known.
  void get_remote_ip_and_port(std::string& ip, int& port) const override { get_local_ip_and_port(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return socket_; }

 private:
  // What has arrived is taken even if the time is over: then it was this thread that came late. How much there may be is bounded.
  double read_seconds() const {
    return std::max(0.0, (received_ == 0 ? limits_.idle_seconds : limits_.request_seconds) - reading_.seconds());
  }

  // Also true when the other side, or end(), has closed the connection. Looks once if there is no time, and never if it is over.
  bool wait(short events, double seconds) const {
    constexpr double kMilliseconds = 1000;
    const Stopwatch watch;
    double left = seconds;
    while (left >= 0) {
      pollfd entry{.fd = socket_, .events = events, .revents = 0};
      const int ready = ::poll(&entry, 1, left > 0 ? static_cast<int>(left * kMilliseconds) + 1 : 0);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
      left = seconds - watch.seconds();
    }
    return false;
  }

  bool fill() {
    failed_ = true;
    ssize_t count = 0;
    do {
      if (received_ >= limits_.request_bytes || !wait(POLLIN, read_seconds())) return false;
      count = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    } while (count < 0 && (errno == EAGAIN || errno == EINTR));
    failed_ = count < 0;
    if (count <= 0) return false;
    next_ = 0;
    filled_ = static_cast<std::size_t>(count);
    received_ += filled_;
    return true;
  }

  socket_t socket_;
  HttpLimits limits_;
  Stopwatch reading_;
  std::optional<Stopwatch> answering_;
  std::array<char, 4096> buffer_{};
  std::size_t next_ = 0;
  std::size_t filled_ = 0;
  std::size_t received_ = 0;
  bool failed_ = false;
};

}  // namespace

// The library's way to give work to threads; it owns these, and they go before the server does.
class BoundedHttpServer::Tasks : public httplib::TaskQueue {
 public:
  explicit Tasks(BoundedHttpServer& server) : server_(server) {}
  void enqueue(std::function<void()> task) override { server_.enqueue(std::move(task)); }
  void shutdown() override { server_.close_queue(); }

 private:
  BoundedHttpServer& server_;
};

// A socket that was accepted, and that end() may cut as long as it is open.
class BoundedHttpServer::Connection {
 public:
  Connection(BoundedHttpServer& server, socket_t socket) : server_(server), socket_(socket), admitted_(server.admit(socket)) {}
  ~Connection() {
    if (admitted_) server_.dismiss(socket_);  // Before its number can become that of another file.
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  bool admitted() const { return admitted_; }

 private:
  BoundedHttpServer& server_;
  socket_t socket_;
  bool admitted_;
};

BoundedHttpServer::BoundedHttpServer(const HttpLimits& limits)
    : limits_(limits), pool_(limits.connections + 2), free_threads_(pool_.threads() - 2) {
  // One thread is the owner's, one listens, and at least one answers.
  if (free_threads_ < 1) throw UserError("the system refuses to start another thread, for --watch; leave it out");
  set_keep_alive_max_count(1);
  listen_work_ = [this] {
    lower_priority();
    listen_after_bind();
  };
  answer_work_ = [this] { work(); };
  new_task_queue = [this] {
    listening_.set_value();  // Asked for when it listens, once.
    return new Tasks(*this);
  };
}

BoundedHttpServer::~BoundedHttpServer() { end(); }

void BoundedHttpServer::serve() {
  const int answering = free_threads_;
  pool_.submit(jobs_.emplace_back(listen_work_));
  for (int i = 0; i < answering; ++i) pool_.submit(jobs_.emplace_back(answer_work_));
  listening_.get_future().wait();
}

void BoundedHttpServer::end() {
  if (jobs_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const socket_t socket : open_) ::shutdown(socket, SHUT_RDWR);
  }
  stop();
  for (WorkPool::Job& job : jobs_) static_cast<void>(pool_.finish(job));
  jobs_.clear();
}

bool BoundedHttpServer::process_and_close_socket(socket_t socket) {
  const Connection connection(*this, socket);
  if (!connection.admitted()) return false;
  TimedStream stream(socket, limits_);
  bool closed = false;
  return process_request(stream, true, closed, nullptr);
}

// Waits while all threads have a connection: so none is accepted that nobody reads, however many there are.
void BoundedHttpServer::enqueue(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return free_threads_ > 0; });
  --free_threads_;
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void BoundedHttpServer::close_queue() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void BoundedHttpServer::work() {
  std::unique_lock lock(mutex_);
  if (!ending_) lower_priority();  // Else it may be the owner, who runs what nobody has begun.
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception&) {  // The connection is closed, and that is all that can be said to its client.
    }
    task = nullptr;
    lock.lock();
    ++free_threads_;
    changed_.notify_all();
  }
}

bool BoundedHttpServer::admit(socket_t socket) {
  const std::lock_guard lock(mutex_);
  if (!ending_) open_.insert(socket);
  return !ending_;
}

void BoundedHttpServer::dismiss(socket_t socket) {
  const std::lock_guard lock(mutex_);
  open_.erase(socket);
}

}  // namespace starling::cli
