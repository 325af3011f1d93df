#include "collective/common/sockets.h"

#ifndef _WIN32

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

namespace mojo {
namespace {

// Prepared sets the options of a new socket: it does not block, is not inherited, and raises no signal.
Socket Prepared(int fd) {
  if (fd < 0) return Socket();
  const int on = 1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
#ifdef SO_NOSIGPIPE
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
  return Socket(fd);
}

bool IsBusy() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Socket& Socket::operator=(Socket&& other) {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

int Socket::Release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

bool Address::IsLoopback() const {
  if (storage.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
  }
  return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
}

int Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void Address::SetPort(int port) {
  const auto value = htons(static_cast<uint16_t>(port));
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = value;
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = value;
  }
}

bool Wait(int fd, bool write, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p = {fd, static_cast<short>(write ? POLLOUT : POLLIN), 0};
    const int n = poll(&p, 1, static_cast<int>(std::min<long long>(std::max<long long>(left + 1, 0), 1000)));
    if (n > 0) return true;
    if (left < 0 || (n < 0 && errno != EINTR)) return false;
  }
}

Socket Listen(const Address& address) {
  Socket s = Prepared(socket(address.storage.ss_family, SOCK_STREAM, 0));
  const int on = 1;
  if (!s.open()) return s;
  setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(s.fd(), address.get(), address.size) != 0 || listen(s.fd(), SOMAXCONN) != 0) {
    const int why = errno;
    s = Socket();
    errno = why;
  }
  return s;
}

Socket Accepted(const Socket& listener, Address* from) {
  from->size = sizeof(from->storage);
  return Prepared(accept(listener.fd(), from->get(), &from->size));
}

Socket Connect(const Address& address, Clock::time_point until) {
  Socket s = Prepared(socket(address.storage.ss_family, SOCK_STREAM, 0));
  if (!s.open() || connect(s.fd(), address.get(), address.size) == 0) return s;
  int error = errno;
  socklen_t size = sizeof(error);
  if (error == EINPROGRESS && Wait(s.fd(), true, until) &&
      getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
    return s;
  }
  return Socket();
}

bool SendAll(int fd, const void* data, size_t bytes, Clock::time_point until) {
  for (size_t done = 0; done < bytes;) {
    const long n = SendSome(fd, static_cast<const char*>(data) + done, bytes - done);
    if (n < 0 || (n == 0 && !Wait(fd, true, until))) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes, Clock::time_point until) {
  for (size_t done = 0; done < bytes;) {
    const long n = ReceiveSome(fd, static_cast<char*>(data) + done, bytes - done);
    if (n < 0 || (n == 0 && !Wait(fd, false, until))) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

long SendSome(int fd, const void* data, size_t bytes) {
  const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
  return n >= 0 ? static_cast<long>(n) : IsBusy() ? 0 : -1;
}

long ReceiveSome(int fd, void* data, size_t bytes) {
  const ssize_t n = recv(fd, data, bytes, 0);
  return n > 0 ? static_cast<long>(n) : n < 0 && IsBusy() ? 0 : -1;
}

}  // namespace mojo

#endif  // !_WIN32
