// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// An HTTP server that its clients cannot hold: it ends when it is told to, and a request that does not come or an answer that is not read
// costs it one of its threads for a bounded time.
//
//   BoundedHttpServer http;
//   http.Get("/", answer);
//   http.bind_to_port("127.0.0.1", 8080);
//   http.serve();                           // From now on, in threads of low priority.
//   http.end();                             // At once.
//
// The library's own server gives every byte of a request a time of its own, so that a client that sends one now and then keeps a thread
// for ever, and ends only when all of its threads have.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <set>

#include "starling/base/work_pool.h"

namespace starling::cli {

// What clients may take. Connections beyond `connections` wait in the system until one of them is done.
struct HttpLimits {
  int connections = 16;        // At a time, each with a thread. Browsers like to hold some in reserve.
  double idle_seconds = 1;     // Until the first byte of a request,
  double request_seconds = 2;  // and until its last, from the beginning.
  double answer_seconds = 5;   // For all of an answer, from its first byte.
  std::size_t request_bytes = 64 * 1024;
};

// Every connection ends with its answer. Set up, served and ended by one thread; handlers run in others, several at a time.
class BoundedHttpServer : public httplib::Server {
 public:
  // Starts its threads. Throws UserError if the system refuses; if it gives fewer, fewer connections are answered at a time.
  explicit BoundedHttpServer(const HttpLimits& limits = {});
  ~BoundedHttpServer() override;
  BoundedHttpServer(const BoundedHttpServer&) = delete;
  BoundedHttpServer& operator=(const BoundedHttpServer&) = delete;

  // Returns when clients are answered. Once, after binding.
  void serve();

  // Cuts all connections, also those in the middle of an answer, and returns when the threads are done. A handler that runs is waited for.
  void end();

 private:
  class Tasks;
  class Connection;
  bool process_and_close_socket(socket_t socket) override;
  void enqueue(std::function<void()> task);
  void close_queue();
  void work();
  bool admit(socket_t socket);
  void dismiss(socket_t socket);

  HttpLimits limits_;
  WorkPool pool_;
  std::promise<void> listening_;
  // The work of the jobs; members, because jobs refer to them.
  std::function<void()> listen_work_;
  std::function<void()> answer_work_;
  std::list<WorkPool::Job> jobs_;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int free_threads_;
  bool closed_ = false;
  bool ending_ = false;
  std::set<socket_t> open_;
};

}  // namespace starling::cli
