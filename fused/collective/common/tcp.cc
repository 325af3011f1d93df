// Messages by TCP: a connection between each two ranks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/common/sockets.h"
#include "collective/common/transport.h"

#ifdef _WIN32

namespace mojo {

std::unique_ptr<Transport> OpenSockets(const Launch&, Clock::duration, Failure* failure) {
  Fail(failure, -1, Failure::kOther, "models of several ranks do not run on Windows");
  return nullptr;
}

}  // namespace mojo

#else

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

namespace mojo {
namespace {

using std::chrono::milliseconds;

// How long a stranger that connects may take to say who it is, and how long the ranks take to connect to each other
// once rank 0 knows all of them.
constexpr auto kHelloTime = std::chrono::seconds(5), kMeshTime = std::chrono::seconds(8);

// When rank 0 tells its user which rank it waits for.
constexpr auto kTellTime = std::chrono::seconds(30);

// How long a rank that gives up waits for the others to read why.
constexpr auto kDrainTime = milliseconds(500);

// Peer is the connection to another rank, and how much of an exchange has moved.
struct Peer {
  Socket socket;
  Address address;
  size_t sent = 0, received = 0;  // of the header and the bytes after it
  bool sends = true;              // whether it took what was sent last
  Header header;
};

class Sockets : public Transport {
 public:
  explicit Sockets(const Launch& launch)
      : rank_(launch.rank), ranks_(launch.ranks), peers_(static_cast<size_t>(launch.ranks)) {}

  bool Join(Clock::time_point until, Failure* failure);
  bool Exchange(const Header& mine, const Part* send, const Place* receive, Clock::duration patience,
                Failure* failure) override;
  bool Beat() override;
  void Abort(const Header& mine, const Failure& failure) override;
  void Finalize() override {}

 private:
  Header Hello(Header::Kind kind, uint64_t secret) const;
  bool FindMaster(Failure* failure);
  bool Lead(Clock::time_point until, Failure* failure);
  bool Follow(Clock::time_point until, Failure* failure);
  bool Accept(const Socket& listener, int first, uint64_t secret, Clock::time_point until, Failure* failure);
  bool Arrived(Socket socket, const Address& from, const Header& hello, int first, uint64_t secret, Failure* failure);
  bool Push(Peer* p, const Header& mine, const Part& part, Vigil* vigil);
  bool PullHeader(Peer* p, bool* heard);
  bool Pull(Peer* p, int rank, const Header& mine, const Place& place, Vigil* vigil, Failure* failure);
  bool Ended(int rank, Failure* failure) const;
  void Drain();

  const int rank_, ranks_;
  std::vector<Peer> peers_;
  std::string host_, port_;
  std::vector<Address> masters_;
  std::atomic<bool> busy_{false};  // sending, once all ranks are connected
  bool beats_ = true;              // until the first exchange
};

// Newcomer is a connection that has not said yet which rank it is.
struct Newcomer {
  Socket socket;
  Address from;
  Clock::time_point until;
  size_t got = 0;
  Header hello;
};

Header Sockets::Hello(Header::Kind kind, uint64_t secret) const {
  Header h;
  h.kind = kind;
  h.rank = static_cast<uint32_t>(rank_);
  h.ranks = static_cast<uint32_t>(ranks_);
  h.sequence = secret;
  return h;
}

// FindMaster finds the addresses of rank 0. It takes the port after MASTER_PORT if torchrun itself listens there, which
// its agent says in TORCHELASTIC_USE_AGENT_STORE.
bool Sockets::FindMaster(Failure* failure) {
  const char *const host = getenv("MASTER_ADDR"), *const port = getenv("MASTER_PORT");
  const char* const own = getenv("MOJO_COLLECTIVE_PORT");
  if (host == nullptr || (port == nullptr && own == nullptr)) {
    return Fail(failure, -1, Failure::kOther,
                "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, equal on all ranks");
  }
  char* end = nullptr;
  const char* const text = own != nullptr ? own : port;
  long number = strtol(text, &end, 10);
  const char* const agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (own == nullptr && agent != nullptr && strcmp(agent, "True") == 0) ++number;
  if (end == text || *end != 0 || number < 1 || number > 65535) {
    return Fail(failure, -1, Failure::kOther, "%s=%.40s is not a port: set a number from 1 to 65535",
                own != nullptr ? "MOJO_COLLECTIVE_PORT" : "MASTER_PORT", text);
  }
  host_ = host;
  port_ = std::to_string(number);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host, port_.c_str(), &hints, &list);
  masters_.clear();
  for (addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    masters_.emplace_back();
    memcpy(&masters_.back().storage, a->ai_addr, a->ai_addrlen);
    masters_.back().size = a->ai_addrlen;
  }
  if (list != nullptr) freeaddrinfo(list);
  return !masters_.empty() || Fail(failure, -1, Failure::kOther, "MASTER_ADDR=%.200s has no address: %s", host,
                                   error == 0 ? "neither IPv4 nor IPv6" : gai_strerror(error));
}

bool Sockets::Join(Clock::time_point until, Failure* failure) {
  do {  // a name may get its address while the ranks start
    if (FindMaster(failure)) return rank_ == 0 ? Lead(until, failure) : Follow(until, failure);
    if (getenv("MASTER_ADDR") == nullptr || !failure->text.compare(0, 6, "MASTER_PORT") || host_.empty()) return false;
    usleep(500000);
  } while (Clock::now() < until);
  return false;
}

// Lead waits for the other ranks at rank 0, and sends each the addresses of all.
bool Sockets::Lead(Clock::time_point until, Failure* failure) {
  Socket listener;
  for (const Address& master : masters_) {
    Address any = master;
    if (!master.IsLoopback()) {
      memset(&any.storage, 0, sizeof(any.storage));
      any.storage.ss_family = master.storage.ss_family;
      any.SetPort(master.port());
    }
    listener = Listen(any);
    if (listener.open()) break;
  }
  if (!listener.open()) {
    return Fail(failure, 0, Failure::kOther,
                "rank 0 cannot listen at port %s: %s: set MOJO_COLLECTIVE_PORT to a free port, equal on all ranks",
                port_.c_str(), strerror(errno));
  }
  if (!Accept(listener, 1, 0, until, failure)) {
    Abort(Hello(Header::kAbort, 0), *failure);
    return false;
  }
  std::random_device random;
  const Header table = Hello(Header::kTable, uint64_t{random()} << 32 | random());
  std::vector<Address> addresses;
  for (const Peer& p : peers_) addresses.push_back(p.address);
  const auto mesh = Clock::now() + kMeshTime;
  for (int r = 1; r < ranks_; ++r) {
    const int fd = peers_[static_cast<size_t>(r)].socket.fd();
    if (!SendAll(fd, &table, sizeof(table), mesh) ||
        !SendAll(fd, addresses.data(), addresses.size() * sizeof(Address), mesh)) {
      return Ended(r, failure);
    }
  }
  return true;
}

// Follow connects to rank 0, which tells where the other ranks are, to those before this one, and waits for the others.
bool Sockets::Follow(Clock::time_point until, Failure* failure) {
  Peer& zero = peers_[0];
  Socket listener;
  Header answer;
  for (size_t n = 0; answer.kind != Header::kWelcome; ++n) {
    const Address& master = masters_[n % masters_.size()];
    zero.socket = Connect(master, std::min(until, Clock::now() + kHelloTime));
    if (zero.socket.open()) {
      Address local;
      local.size = sizeof(local.storage);
      getsockname(zero.socket.fd(), local.get(), &local.size);
      local.SetPort(0);
      listener = Listen(local);
      local.size = sizeof(local.storage);
      getsockname(listener.fd(), local.get(), &local.size);
      Header hello = Hello(Header::kHello, 0);
      hello.port = static_cast<uint32_t>(local.port());
      const auto soon = std::min(until, Clock::now() + kHelloTime);
      if (listener.open() && SendAll(zero.socket.fd(), &hello, sizeof(hello), soon) &&
          ReceiveAll(zero.socket.fd(), &answer, sizeof(answer), soon) && answer.magic == Header::kMagic &&
          answer.kind == Header::kAbort) {
        return CheckHeader(hello, answer, 0, failure);
      }
      if (answer.magic != Header::kMagic || answer.rank != 0) answer = Header();
    }
    if (answer.kind == Header::kWelcome) break;
    if (Clock::now() >= until) {
      return Fail(failure, 0, Failure::kLate,
                  "rank 0 did not answer at %s, port %s: was it started, with this "
                  "MASTER_ADDR and MASTER_PORT?",
                  host_.c_str(), port_.c_str());
    }
    usleep(100000);
  }
  zero.address = masters_[0];
  socklen_t size = sizeof(zero.address.storage);
  getpeername(zero.socket.fd(), zero.address.get(), &size);
  zero.address.size = size;
  std::vector<Address> addresses(peers_.size());
  Vigil vigil(true, until - Clock::now(), 1);
  while (zero.received < sizeof(Header)) {
    bool heard = false;
    if (!PullHeader(&zero, &heard)) return Ended(0, failure);
    if (heard) vigil.Heard(0);
    if (!vigil.Look(0, false, failure)) return false;
    Wait(zero.socket.fd(), false, Clock::now() + milliseconds(100));
  }
  const Header& table = zero.header;
  if (table.magic != Header::kMagic || table.kind != Header::kTable) {
    zero.header.kind = Header::kAbort;
    return CheckHeader(Hello(Header::kData, 0), table, 0, failure);
  }
  const auto mesh = Clock::now() + kMeshTime;
  if (!ReceiveAll(zero.socket.fd(), addresses.data(), addresses.size() * sizeof(Address), mesh)) {
    return Ended(0, failure);
  }
  for (int r = 1; r < rank_; ++r) {
    Peer& p = peers_[static_cast<size_t>(r)];
    p.address = addresses[static_cast<size_t>(r)];
    const bool known = p.address.size > 0 && p.address.size <= sizeof(p.address.storage) &&
                       (p.address.storage.ss_family == AF_INET || p.address.storage.ss_family == AF_INET6);
    if (known && p.address.IsLoopback() && !zero.address.IsLoopback()) {  // it is on rank 0's host
      const int port = p.address.port();
      p.address = zero.address;
      p.address.SetPort(port);
    }
    const Header hello = Hello(Header::kHello, table.sequence);
    if (known) p.socket = Connect(p.address, mesh);
    if (!known || !p.socket.open() || !SendAll(p.socket.fd(), &hello, sizeof(hello), mesh)) return Ended(r, failure);
  }
  return Accept(listener, rank_ + 1, table.sequence, mesh, failure);
}

// Accept waits until the ranks from first on have connected and said hello with the secret. Others are dropped.
bool Sockets::Accept(const Socket& listener, int first, uint64_t secret, Clock::time_point until, Failure* failure) {
  std::vector<Newcomer> newcomers;
  std::vector<pollfd> polled;
  const auto begin = Clock::now();
  auto beat = begin, tell = begin + kTellTime;
  for (;;) {
    polled.assign(1, {listener.fd(), POLLIN, 0});
    int missing = -1;
    for (int r = ranks_ - 1; r >= first; --r) {
      const Socket& s = peers_[static_cast<size_t>(r)].socket;
      if (!s.open()) missing = r;
      polled.push_back({s.fd(), POLLIN, 0});  // poll ignores a negative descriptor
    }
    if (missing < 0) return true;
    if (Clock::now() >= until) {
      return Fail(failure, missing, Failure::kLate,
                  "rank %d did not connect in time: was it started, and does its model load?", missing);
    }
    if (rank_ == 0 && Clock::now() >= tell) {
      fprintf(stderr, "mojo: rank 0 waits for rank %d, which has not connected (for up to %.0f s more: %s)\n", missing,
              std::chrono::duration<double>(until - Clock::now()).count(), kJoinVariable);
      tell = until;
    }
    if (rank_ == 0 && Clock::now() >= beat) {
      Beat();
      beat = Clock::now() + kBeatTime;
    }
    for (const Newcomer& n : newcomers) polled.push_back({n.socket.fd(), POLLIN, 0});
    poll(polled.data(), static_cast<nfds_t>(polled.size()), 100);
    for (int r = first; r < ranks_; ++r) {  // a rank that ends while others are awaited
      const Socket& s = peers_[static_cast<size_t>(r)].socket;
      char byte;
      if (s.open() && recv(s.fd(), &byte, 1, MSG_PEEK) == 0) return Ended(r, failure);
    }
    for (size_t i = 0; i < newcomers.size();) {
      Newcomer& n = newcomers[i];
      const long got = ReceiveSome(n.socket.fd(), reinterpret_cast<char*>(&n.hello) + n.got, sizeof(Header) - n.got);
      n.got += static_cast<size_t>(std::max(got, 0L));
      if (got >= 0 && n.got < sizeof(Header) && Clock::now() < n.until) {
        ++i;
        continue;
      }
      if (n.got == sizeof(Header) && !Arrived(std::move(n.socket), n.from, n.hello, first, secret, failure)) {
        return false;
      }
      newcomers.erase(newcomers.begin() + static_cast<long>(i));
    }
    Address from;
    Socket socket = Accepted(listener, &from);
    if (socket.open() && newcomers.size() < 4096) {
      newcomers.push_back({std::move(socket), from, Clock::now() + kHelloTime, 0, Header()});
    }
  }
}

// Arrived adds a connection if its hello is one of a rank that is awaited. It returns false if the ranks do not belong
// together.
bool Sockets::Arrived(Socket socket, const Address& from, const Header& hello, int first, uint64_t secret,
                      Failure* failure) {
  if (hello.magic != Header::kMagic || hello.kind != Header::kHello || hello.sequence != secret) return true;
  if (hello.ranks != static_cast<uint32_t>(ranks_)) {
    return Fail(failure, static_cast<int>(hello.rank), Failure::kOther,
                "a process says that it is rank %u of %u, and this one is rank %d of %d: start all of them together",
                hello.rank, hello.ranks, rank_, ranks_);
  }
  if (hello.rank < static_cast<uint32_t>(first) || hello.rank >= static_cast<uint32_t>(ranks_) || hello.port > 65535) {
    return true;
  }
  Peer& p = peers_[hello.rank];
  if (p.socket.open()) {
    return Fail(failure, static_cast<int>(hello.rank), Failure::kOther,
                "two processes say that they are rank %u: give each process another RANK", hello.rank);
  }
  const Header welcome = Hello(Header::kWelcome, 0);
  if (rank_ == 0 && !SendAll(socket.fd(), &welcome, sizeof(welcome), Clock::now() + kHelloTime)) return true;
  p.socket = std::move(socket);
  p.address = from;
  p.address.SetPort(static_cast<int>(hello.port));
  return true;
}

bool Sockets::Ended(int rank, Failure* failure) const {
  return Fail(failure, rank, Failure::kEnded, "rank %d has ended, or its connection was lost: see its own messages",
              rank);
}

// Push sends as much of the header and the bytes as the connection takes. It returns false if it has ended.
bool Sockets::Push(Peer* p, const Header& mine, const Part& part, Vigil* vigil) {
  while (p->sent < sizeof(Header) + part.bytes) {
    const bool head = p->sent < sizeof(Header);
    const char* const from =
        head ? reinterpret_cast<const char*>(&mine) + p->sent : part.data + (p->sent - sizeof(Header));
    const long n = SendSome(p->socket.fd(), from, (head ? sizeof(Header) : sizeof(Header) + part.bytes) - p->sent);
    if (n <= 0) return n == 0;
    p->sent += static_cast<size_t>(n);
    vigil->Moved();
  }
  return true;
}

// PullHeader receives what is there of a header, without the beats before it, which are bytes of 0. It returns false if
// the connection has ended.
bool Sockets::PullHeader(Peer* p, bool* heard) {
  char* const head = reinterpret_cast<char*>(&p->header);
  while (p->received < sizeof(Header)) {
    const long n = ReceiveSome(p->socket.fd(), head + p->received, sizeof(Header) - p->received);
    if (n <= 0) return n == 0;
    *heard = true;
    p->received += static_cast<size_t>(n);
    size_t beats = 0;
    while (beats < p->received && head[beats] == 0) ++beats;
    p->received -= beats;
    memmove(head, head + beats, p->received);
  }
  return true;
}

// Pull is Push for the bytes of another rank.
bool Sockets::Pull(Peer* p, int rank, const Header& mine, const Place& place, Vigil* vigil, Failure* failure) {
  if (p->received < sizeof(Header)) {
    bool heard = false;
    if (!PullHeader(p, &heard)) return Ended(rank, failure);
    if (heard) vigil->Heard(rank);
    if (p->received < sizeof(Header)) return true;
    vigil->Moved();
    if (!CheckHeader(mine, p->header, rank, failure)) return false;
  }
  while (p->received < sizeof(Header) + place.bytes) {
    const size_t at = p->received - sizeof(Header);
    const long n = ReceiveSome(p->socket.fd(), place.data + at, place.bytes - at);
    if (n < 0) return Ended(rank, failure);
    if (n == 0) return true;
    p->received += static_cast<size_t>(n);
    vigil->Moved();
  }
  return true;
}

bool Sockets::Exchange(const Header& mine, const Part* send, const Place* receive, Clock::duration patience,
                       Failure* failure) {
  const Busy busy(&busy_, true);
  for (Peer& p : peers_) p.sent = p.received = 0;
  std::vector<pollfd> polled(peers_.size());
  Vigil vigil(beats_, patience, peers_.size());
  beats_ = false;
  for (;;) {
    int absent = -1, late = -1, slow = -1;  // ranks whose header or bytes are missing, or that do not take this rank's
    // All headers go out before the first is read: each rank has to see for itself what another does.
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (static_cast<int>(r) != rank_) peers_[r].sends = Push(&peers_[r], mine, send[r], &vigil);
    }
    for (int i = 1; i < ranks_; ++i) {
      const auto r = static_cast<size_t>((rank_ + i) % ranks_);
      Peer& p = peers_[r];
      // A rank that has ended may have sent its reason: what it sent is read first.
      const bool sends = p.sends;
      if (!Pull(&p, static_cast<int>(r), mine, receive[r], &vigil, failure)) return false;
      const bool reads = p.received < sizeof(Header) + receive[r].bytes;
      const bool writes = p.sent < sizeof(Header) + send[r].bytes;
      if (!sends && !reads) return Ended(static_cast<int>(r), failure);
      if (p.received < sizeof(Header)) absent = static_cast<int>(r);
      if (reads) late = static_cast<int>(r);
      if (writes) slow = static_cast<int>(r);
      polled[r] = {reads || writes ? p.socket.fd() : -1,
                   static_cast<short>((reads ? POLLIN : 0) | (writes && sends ? POLLOUT : 0)), 0};
    }
    polled[static_cast<size_t>(rank_)] = {-1, 0, 0};
    if (late < 0 && slow < 0) return true;
    if (!vigil.Look(absent >= 0 ? absent : late >= 0 ? late : slow, absent < 0, failure)) return false;
    poll(polled.data(), static_cast<nfds_t>(polled.size()), 100);
  }
}

bool Sockets::Beat() {
  const Busy busy(&busy_, false);
  for (const Peer& p : peers_) {
    if (busy.held() && beats_ && p.socket.open()) SendSome(p.socket.fd(), "", 1);
  }
  return !busy.held() || beats_;
}

void Sockets::Abort(const Header& mine, const Failure& failure) {
  Header header = mine;
  header.kind = Header::kAbort;
  header.culprit = static_cast<uint32_t>(failure.culprit);
  header.cause = failure.cause;
  for (Peer& p : peers_) {
    if (!p.socket.open()) continue;
    // In the midst of a message, the end of the connection has to tell.
    SendSome(p.socket.fd(), &header, sizeof(header));
    shutdown(p.socket.fd(), SHUT_WR);
  }
  Drain();
}

// Drain reads what the others have sent until they close, too. Otherwise the end of this process would reset the
// connections, and the others would lose the reason that they have not read yet.
void Sockets::Drain() {
  const auto until = Clock::now() + kDrainTime;
  for (Peer& p : peers_) {
    char bytes[4096];
    long n = p.socket.open() ? 0 : -1;
    while (n >= 0 && Clock::now() < until) {
      n = ReceiveSome(p.socket.fd(), bytes, sizeof(bytes));
      if (n == 0 && !Wait(p.socket.fd(), false, until)) break;
    }
  }
}

}  // namespace

std::unique_ptr<Transport> OpenSockets(const Launch& launch, Clock::duration patience, Failure* failure) {
  std::unique_ptr<Sockets> sockets(new Sockets(launch));
  if (sockets->Join(Clock::now() + patience, failure)) return sockets;
  return nullptr;
}

}  // namespace mojo

#endif  // !_WIN32
