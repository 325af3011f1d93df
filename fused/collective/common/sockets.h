// TCP connections to the other ranks.
#pragma once

#ifndef _WIN32

#include <sys/socket.h>

#include <string>

#include "collective/common/transport.h"

namespace mojo {

// Socket owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) : fd_(other.Release()) {}
  Socket& operator=(Socket&& other);
  ~Socket();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release();

 private:
  int fd_;
};

// Address is the address of a socket.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool IsLoopback() const;
  int port() const;
  void SetPort(int port);
};

// Wait waits until a socket can be read (or written) or a moment has come, and reports which.
bool Wait(int fd, bool write, Clock::time_point until);

// Listen opens a socket that accepts connections to an address. It is not open if that fails, and errno says why.
Socket Listen(const Address& address);

// Accepted returns a connection that waits at a listener, or a socket that is not open.
Socket Accepted(const Socket& listener, Address* from);

// Connect connects to an address until a moment. The socket is not open if that fails.
Socket Connect(const Address& address, Clock::time_point until);

// SendAll and ReceiveAll move all bytes until a moment, or return false: then errno is 0 if the other end has closed.
bool SendAll(int fd, const void* data, size_t bytes, Clock::time_point until);
bool ReceiveAll(int fd, void* data, size_t bytes, Clock::time_point until);

// SendSome and ReceiveSome move what can be moved at once: a number of bytes, or -1 if the connection has ended.
long SendSome(int fd, const void* data, size_t bytes);
long ReceiveSome(int fd, void* data, size_t bytes);

}  // namespace mojo

#endif  // !_WIN32
