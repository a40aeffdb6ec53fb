// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/watch.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>

#include "starling/base/error.h"
#include "starling/base/work_pool.h"
#include "starling/lab/report.h"

namespace starling::cli {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kLargestPort = 65535;
constexpr int kLowPriority = 10;         // As `nice` counts: the training goes first.
constexpr int kThreads = 4;              // That answer, besides the one that listens. Browsers like to hold connections in reserve.
constexpr int kIdleSeconds = 1;          // Such a connection is closed after this.
constexpr auto kPatience = 2s;           // With a client that does not send or read, and with pages that are to see the end.
constexpr std::size_t kMostPages = 100;  // That are remembered.
constexpr std::size_t kLongestPageName = 32;

// The library's own options would let two programs share a port.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
}

// A page of another origin can make its name lead to this machine, but not this machine to be called otherwise in the Host header.
bool is_local_host(const std::string& host) {
  const std::string name = host.substr(0, host.find(':'));
  return name == kLoopback || name == "localhost";
}

}  // namespace

struct Watch::Server {
  httplib::Server http;
  int port = 0;
  WorkPool pool{2};
  std::promise<void> listening;
  // The work of the job; a member, because a job refers to it.
  std::function<void()> listen = [this] {
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, kLowPriority));  // Of this thread, and of those it starts.
    http.listen_after_bind();
  };
  std::optional<WorkPool::Job> job;

  std::mutex mutex;  // Guards what follows.
  std::condition_variable answered;
  std::optional<lab::LiveReport> report;
  bool ended = false;
  std::set<std::string> pages;  // Those that are open and ask again, as far as they have said.

  void answer_page(httplib::Response& response) {
    const std::lock_guard lock(mutex);
    response.set_content(report->page(), "text/html; charset=utf-8");
  }

  void answer_data(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    const std::string page = request.get_param_value("page").substr(0, kLongestPageName);
    if (request.has_param("leaves")) {
      pages.erase(page);
      response.set_content("{}", "application/json");
    } else {
      response.set_content(report->data(ended), "application/json");
      if (ended) {
        pages.erase(page);
      } else if (!page.empty() && pages.size() < kMostPages) {
        pages.insert(page);
      }
    }
    answered.notify_all();
  }

  void route() {
    http.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      response.set_header("Cache-Control", "no-store");
      response.set_header("X-Content-Type-Options", "nosniff");
      if (is_local_host(request.get_header_value("Host"))) return httplib::Server::HandlerResponse::Unhandled;
      constexpr int kForbidden = 403;
      response.status = kForbidden;
      response.set_content("This page is for this machine alone: call it 127.0.0.1 or localhost.\n", "text/plain; charset=utf-8");
      return httplib::Server::HandlerResponse::Handled;
    });
    http.Get("/", [this](const httplib::Request&, httplib::Response& response) { answer_page(response); });
    http.Get("/data.json", [this](const httplib::Request& request, httplib::Response& response) { answer_data(request, response); });
  }

  void stop() {
    if (!job) return;
    http.stop();
    static_cast<void>(pool.finish(*job));
    job.reset();
  }
};

Watch::Watch(int port) : server_(std::make_unique<Server>()) {
  httplib::Server& http = server_->http;
  http.set_socket_options(set_socket_options);
  // Connections end with their answer, so that the server can end at any time.
  http.set_keep_alive_max_count(1);
  http.set_keep_alive_timeout(kIdleSeconds);
  http.set_read_timeout(kPatience);
  http.set_write_timeout(kPatience);
  http.set_payload_max_length(0);
  http.new_task_queue = [this] {
    server_->listening.set_value();  // Asked for when it listens, once.
    return new httplib::ThreadPool(kThreads);
  };
  server_->route();
  server_->port = port == 0 ? http.bind_to_any_port(kLoopback) : (http.bind_to_port(kLoopback, port) ? port : -1);
  if (server_->port <= 0) {
    throw UserError(port == 0 ? fmt::format("cannot take any port of {} for --watch", kLoopback)
                              : fmt::format("port {} of {}, for --watch, is taken or not allowed; give another one, or --watch alone for "
                                            "any that is free",
                                            port, kLoopback));
  }
  if (server_->pool.threads() < 2) throw UserError("the system refuses to start another thread, for --watch; leave it out");
}

Watch::~Watch() { server_->stop(); }

std::string Watch::address() const { return fmt::format("http://{}:{}/", kLoopback, server_->port); }

void Watch::start(const std::string& run_path) {
  server_->report.emplace(run_path);
  server_->job.emplace(server_->listen);
  server_->pool.submit(*server_->job);
  server_->listening.get_future().wait();
}

void Watch::finish() {
  if (server_->job) {
    std::unique_lock lock(server_->mutex);
    server_->ended = true;
    server_->answered.wait_for(lock, kPatience, [this] { return server_->pages.empty(); });
  }
  server_->stop();
}

int parse_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty()) return 0;
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > kLargestPort) {
    throw UserError(fmt::format("--watch is '{}', but a port is a whole number up to {}; 0 takes any that is free", text, kLargestPort));
  }
  return port;
}

}  // namespace starling::cli
