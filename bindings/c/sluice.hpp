// SPDX-License-Identifier: MIT OR Apache-2.0
// Sluice in C++20: classes over sluice.h, whose comments and conventions apply. Nothing is compiled apart from this header.
//
//   sluice::ring_options options;
//   options.channel.flags = SLUICE_CREATE;
//   auto producer = sluice::producer::open("prices", options).value(); // throws sluice::exception
//   if (auto sent = producer.send(sluice::bytes_of("4711 99.50")); !sent)
//       std::cerr << sent.error().message() << "; " << sent.error().hint() << '\n';
//
// An object owns what it opened, can be moved, and closes it when it is destroyed. A call on an object that was moved from fails with
// EINVAL. Calls return a sluice::result: a value, or a sluice::error with the number, message and hint of sluice.h. A name or a path with a
// zero inside fails with EINVAL.
//
// A record in place is an object, which releases the record when it is destroyed, and so is a reservation, which is given back. Destroy these
// objects before the consumer or the producer is destroyed, aborted, or replaced by an assignment. They do not follow it to another thread.

#ifndef SLUICE_HPP
#define SLUICE_HPP

#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include "sluice.h"

namespace sluice {

using bytes = std::span<const std::byte>;

/// The bytes of a text, without a zero at its end.
inline bytes bytes_of(std::string_view text) noexcept { return std::as_bytes(std::span(text.data(), text.size())); }

inline std::string_view text_of(bytes data) noexcept { return {reinterpret_cast<const char *>(data.data()), data.size()}; }

/// How long a call may wait: sluice::forever, sluice::never, or a time, rounded up to milliseconds.
class timeout {
public:
	template <class Rep, class Period>
	constexpr timeout(std::chrono::duration<Rep, Period> time) : ms_{rounded(time)} {}

	constexpr int ms() const noexcept { return ms_; }
	static constexpr timeout forever() noexcept { return timeout{-1}; }

private:
	constexpr explicit timeout(int ms) noexcept : ms_{ms} {}

	template <class Duration> static constexpr int rounded(Duration time)
	{
		constexpr int max = std::numeric_limits<int>::max();
		double ms = std::chrono::duration<double, std::milli>{time}.count();
		if (!(ms > 0)) // also if it is no number
			return 0;
		if (ms >= max)
			return max;
		int whole = static_cast<int>(ms);
		return whole < ms ? whole + 1 : whole;
	}

	int ms_;
};

inline constexpr timeout forever = timeout::forever();
inline constexpr timeout never = std::chrono::milliseconds{0};

/// Why the last call of this thread has failed.
class error {
public:
	/// Takes the negative errno that a call of sluice.h has just returned. EAGAIN, for which programs call in a loop, allocates nothing.
	explicit error(long long returned) : number_{static_cast<int>(-returned)}
	{
		if (number_ != EAGAIN) {
			message_ = sluice_error_message();
			hint_ = sluice_error_hint();
		}
	}

	int number() const noexcept { return number_; }
	std::string message() const { return number_ == EAGAIN ? sluice_strerror(number_) : message_; }
	const std::string &hint() const noexcept { return hint_; }

	bool would_block() const noexcept { return number_ == EAGAIN; }
	bool timed_out() const noexcept { return number_ == ETIMEDOUT; }
	/// The end of a stream.
	bool ended() const noexcept { return number_ == ENODATA; }

private:
	int number_;
	std::string message_, hint_;
};

class exception : public std::runtime_error {
public:
	explicit exception(sluice::error error)
		: std::runtime_error{error.hint().empty() ? error.message() : error.message() + "; " + error.hint()},
		  error_{std::move(error)}
	{
	}

	const sluice::error &error() const noexcept { return error_; }

private:
	sluice::error error_;
};

/// A value or an error, as std::expected of C++23.
template <class T> class [[nodiscard]] result {
public:
	result(T value) : outcome_{std::in_place_index<0>, std::move(value)} {}
	result(sluice::error error) : outcome_{std::in_place_index<1>, std::move(error)} {}

	bool has_value() const noexcept { return outcome_.index() == 0; }
	explicit operator bool() const noexcept { return has_value(); }

	/// Throws sluice::exception if there is no value.
	T &value() & { return check(), std::get<0>(outcome_); }
	T value() && { return check(), std::get<0>(std::move(outcome_)); }

	/// Without a value their behaviour is undefined.
	T &operator*() & noexcept { return *std::get_if<0>(&outcome_); }
	T *operator->() noexcept { return std::get_if<0>(&outcome_); }
	/// With a value its behaviour is undefined.
	const sluice::error &error() const & noexcept { return *std::get_if<1>(&outcome_); }
	sluice::error error() && noexcept { return std::move(*std::get_if<1>(&outcome_)); }

private:
	void check() const
	{
		if (!has_value())
			throw exception{error()};
	}

	std::variant<T, sluice::error> outcome_;
};

template <> class [[nodiscard]] result<void> : public result<std::monostate> {
public:
	using result<std::monostate>::result;
	result() : result<std::monostate>{std::monostate{}} {}
};

/// Options with their size, and zeros.
template <class Options> struct sized : Options {
	sized() : Options{} { this->size = sizeof(Options); }
};

using pipe_options = sized<::sluice_pipe_options>;
using ring_options = sized<::sluice_ring_options>;
using socket_options = sized<::sluice_socket_options>;
using bus_options = sized<::sluice_bus_options>;
using map_options = sized<::sluice_map_options>;
using change_options = sized<::sluice_change_options>;

namespace detail {

template <auto Close> struct closer {
	template <class T> void operator()(T *object) const noexcept { Close(object); }
};

/// A text of C. One with a zero inside becomes an empty one, which is no name and no path.
inline std::string text(std::string_view text) { return text.find('\0') == text.npos ? std::string{text} : std::string{}; }

/// What all objects have in common. Moved from, an object is NULL in C.
template <class Handle, auto Close> class object {
public:
	using handle = Handle;
	explicit object(Handle *opened) noexcept : handle_{opened} {}
	/// For calls of sluice.h.
	Handle *get() const noexcept { return handle_.get(); }

protected:
	std::unique_ptr<Handle, closer<Close>> handle_;
};

inline result<void> done(long long returned)
{
	if (returned < 0)
		return error{returned};
	return {};
}

/// A result that is a number, or an object that is constructed from one.
template <class T> result<T> number(long long returned)
{
	if (returned < 0)
		return error{returned};
	return T(static_cast<int>(returned));
}

inline result<std::size_t> length(ssize_t returned)
{
	if (returned < 0)
		return error{returned};
	return static_cast<std::size_t>(returned);
}

/// The object that a call stores.
template <class Object, class Call> result<Object> opened(Call call)
{
	typename Object::handle *handle = nullptr;
	int returned = call(&handle);
	if (returned < 0)
		return error{returned};
	return Object{handle};
}

/// An object that is opened by a name.
template <class Object, class Handle, auto Close, class Options, auto Open> class named : public object<Handle, Close> {
public:
	using object<Handle, Close>::object;
	static result<Object> open(std::string_view name, const Options &options = {})
	{
		return opened<Object>([&](auto **out) { return Open(text(name).c_str(), &options, out); });
	}
};

/// The structure that a call fills in, and what follows a negative result.
template <class Structure, class Call> result<Structure> filled(Call call)
{
	Structure structure{};
	int returned = call(&structure);
	if (returned < 0)
		return error{returned};
	return structure;
}

/// The state of the channel of a name. Without a scope, in the cgroup of the caller.
template <class State, auto Query> result<State> queried(std::string_view name, const std::optional<std::string> &scope)
{
	return filled<State>([&](auto *out) { return Query(text(name).c_str(), scope ? text(*scope).c_str() : nullptr, out); });
}

inline bytes view(const void *start, std::size_t length) noexcept { return {static_cast<const std::byte *>(start), length}; }

} // namespace detail

/// Channels that exist until they are removed. A channel that exists is an error.
inline result<void> create_pipe(std::string_view name, const pipe_options &options = {})
{
	return detail::done(sluice_pipe_create(detail::text(name).c_str(), &options));
}

inline result<void> create_ring(std::string_view name, const ring_options &options = {})
{
	return detail::done(sluice_ring_create(detail::text(name).c_str(), &options));
}

inline result<void> create_bus(std::string_view name, const bus_options &options = {})
{
	return detail::done(sluice_bus_create(detail::text(name).c_str(), &options));
}

inline result<void> create_map(std::string_view name, const map_options &options = {})
{
	return detail::done(sluice_map_create(detail::text(name).c_str(), &options));
}

/// The states of channels, which are not opened. The scope is the directory of a cgroup, by default the caller's.
inline result<::sluice_channel_state> query_channel(std::uint32_t kind, std::string_view name,
													 const std::optional<std::string> &scope = {})
{
	return detail::filled<::sluice_channel_state>([&](auto *out) {
		return sluice_channel_query(kind, detail::text(name).c_str(), scope ? detail::text(*scope).c_str() : nullptr, out);
	});
}

inline result<::sluice_ring_state> query_ring(std::string_view name, const std::optional<std::string> &scope = {})
{
	return detail::queried<::sluice_ring_state, sluice_ring_query>(name, scope);
}

inline result<::sluice_bus_state> query_bus(std::string_view name, const std::optional<std::string> &scope = {})
{
	return detail::queried<::sluice_bus_state, sluice_bus_query>(name, scope);
}

inline result<::sluice_map_state> query_map(std::string_view name, const std::optional<std::string> &scope = {})
{
	return detail::queried<::sluice_map_state, sluice_map_query>(name, scope);
}

inline result<::sluice_feed_state> query_feed(std::string_view name)
{
	return detail::filled<::sluice_feed_state>([&](auto *out) { return sluice_feed_query(detail::text(name).c_str(), out); });
}

/// Removes the name. Open endpoints stay connected.
inline result<void> unlink_channel(std::uint32_t kind, std::string_view name, const std::optional<std::string> &scope = {})
{
	return detail::done(sluice_channel_unlink(kind, detail::text(name).c_str(), scope ? detail::text(*scope).c_str() : nullptr));
}

/// A descriptor, which is closed when it is destroyed.
class file_descriptor {
public:
	explicit file_descriptor(int fd) noexcept : fd_{fd} {}
	file_descriptor(file_descriptor &&other) noexcept : fd_{other.release()} {}
	file_descriptor &operator=(file_descriptor &&other) noexcept { return std::swap(fd_, other.fd_), *this; }
	~file_descriptor() { if (fd_ >= 0) ::close(fd_); }

	int get() const noexcept { return fd_; }
	int release() noexcept { return std::exchange(fd_, -1); }

private:
	int fd_;
};

/// Pipes, see sluice-pipe(3). Without a name, the pipe of the cgroup.
inline result<file_descriptor> open_pipe_reader(const std::optional<std::string> &name, const pipe_options &options = {})
{
	return detail::number<file_descriptor>(sluice_pipe_open_reader(name ? detail::text(*name).c_str() : nullptr, &options));
}

inline result<file_descriptor> open_pipe_writer(const std::optional<std::string> &name, const pipe_options &options = {})
{
	return detail::number<file_descriptor>(sluice_pipe_open_writer(name ? detail::text(*name).c_str() : nullptr, &options));
}

/// A listening socket for rings.
class listener : public detail::object<::sluice_listener, sluice_listener_close> {
public:
	using object::object;
	static result<listener> bind(std::string_view path)
	{
		return detail::opened<listener>([&](auto **out) { return sluice_listener_bind(detail::text(path).c_str(), out); });
	}
	result<file_descriptor> accept(timeout wait = forever) const
	{
		return detail::number<file_descriptor>(sluice_listener_accept(get(), wait.ms()));
	}
	int fd() const noexcept { return sluice_listener_fd(get()); }
};

inline result<file_descriptor> connect(std::string_view path, timeout wait = forever)
{
	return detail::number<file_descriptor>(sluice_socket_connect(detail::text(path).c_str(), wait.ms()));
}

inline result<std::pair<file_descriptor, file_descriptor>> socket_pair()
{
	int fds[2];
	int returned = sluice_socket_pair(fds);
	if (returned < 0)
		return error{returned};
	return std::pair{file_descriptor{fds[0]}, file_descriptor{fds[1]}};
}

/// Room in a ring. Destroyed without a commit, nothing is sent.
class reservation {
public:
	reservation(::sluice_producer *producer, std::span<std::byte> room) noexcept : producer_{producer}, room_{room} {}
	reservation(reservation &&other) noexcept : producer_{std::exchange(other.producer_, nullptr)}, room_{other.room_} {}
	reservation &operator=(reservation &&) = delete;
	~reservation() { if (producer_) sluice_producer_cancel(producer_); }

	std::span<std::byte> room() const noexcept { return room_; }
	/// Sends the first bytes. The reservation remains if it is shorter.
	result<void> commit(std::size_t length)
	{
		int returned = sluice_producer_commit(producer_, length);
		if (returned == 0)
			producer_ = nullptr;
		return detail::done(returned);
	}

private:
	::sluice_producer *producer_;
	std::span<std::byte> room_;
};

/// The sending side of a ring.
class producer : public detail::named<producer, ::sluice_producer, sluice_producer_close, ring_options, sluice_ring_open_producer> {
public:
	using named::named;
	/// Over a connected socket.
	static result<producer> over(file_descriptor socket, const socket_options &options = {})
	{
		return detail::opened<producer>([&](auto **out) { return sluice_socket_producer(socket.release(), &options, out); });
	}
	/// On an endpoint that was inherited or received.
	static result<producer> attach(file_descriptor endpoint, const ring_options &options = {})
	{
		return detail::opened<producer>(
			[&](auto **out) { return sluice_ring_attach_producer(endpoint.release(), &options, out); });
	}

	result<void> send(bytes record, timeout wait = forever)
	{
		return detail::done(sluice_producer_send(get(), record.data(), record.size(), wait.ms()));
	}
	result<reservation> reserve(std::size_t length, timeout wait = forever) &
	{
		void *room = nullptr;
		int returned = sluice_producer_reserve(get(), length, &room, wait.ms());
		if (returned < 0)
			return error{returned};
		return reservation{get(), {static_cast<std::byte *>(room), length}};
	}
	/* Returns the number of records that were sent. */
	result<std::size_t> send_batch(std::span<const ::iovec> records, timeout wait = forever)
	{
		auto returned = sluice_producer_send_batch(get(), records.data(), records.size(), wait.ms());
		if (returned < 0)
			return error{static_cast<int>(returned)};
		return static_cast<std::size_t>(returned);
	}
	result<void> begin() { return detail::done(sluice_producer_begin(get())); }
	result<void> publish() { return detail::done(sluice_producer_publish(get())); }
	result<void> flush(timeout wait = forever) { return detail::done(sluice_producer_flush(get(), wait.ms())); }
	std::size_t record_max() const noexcept { return sluice_producer_record_max(get()); }
	int fd() const noexcept { return sluice_producer_fd(get()); }
	result<bool> prepare_wait(std::size_t length) { return detail::number<bool>(sluice_producer_prepare_wait(get(), length)); }
	void finish_wait() { sluice_producer_finish_wait(get()); }
	void abort() { sluice_producer_abort(handle_.release()); }
};

/// The bytes of a message or a packet: until the next call of the object that received it, or until it is released.
inline bytes data_of(const ::sluice_message &message) noexcept { return detail::view(message.bytes, message.length); }
inline bytes data_of(const ::sluice_packet &packet) noexcept { return detail::view(packet.bytes, packet.length); }

/// A record, a message or a packet in place. Destroyed, it is released.
template <class Handle, auto Release, class Header> class held {
public:
	held(Handle *object, bytes data, Header header) noexcept : object_{object}, data_{data}, header_{header} {}
	held(held &&other) noexcept : object_{std::exchange(other.object_, nullptr)}, data_{other.data_}, header_{other.header_} {}
	held &operator=(held &&) = delete;
	~held() { if (object_) Release(object_); }

	bytes data() const noexcept { return data_; }
	const Header &header() const noexcept { return header_; }
	/// Leaves a record in the ring: it is the next one again.
	void keep() noexcept requires std::same_as<Handle, ::sluice_consumer>
	{
		if (object_)
			sluice_consumer_keep(std::exchange(object_, nullptr));
	}

private:
	Handle *object_;
	bytes data_;
	Header header_;
};

using record = held<::sluice_consumer, sluice_consumer_release, std::monostate>;
/// The header has the places of the records.
using records = held<::sluice_consumer, sluice_consumer_release, std::span<const ::iovec>>;
using mapped_message = held<::sluice_mapped_subscriber, sluice_mapped_subscriber_release, ::sluice_message>;
using packet = held<::sluice_feed_consumer, sluice_feed_consumer_release, ::sluice_packet>;

namespace detail {

/// The bytes in place and the structure of a call that fills in a structure.
template <class Held, class Header, class Handle, class Call> result<Held> in_place(Handle *object, Call call)
{
	Header header{};
	int returned = call(&header);
	if (returned < 0)
		return error{returned};
	return Held{object, data_of(header), header};
}

} // namespace detail

/// The receiving side of a ring.
class consumer : public detail::named<consumer, ::sluice_consumer, sluice_consumer_close, ring_options, sluice_ring_open_consumer> {
public:
	using named::named;
	/// Over a connected socket.
	static result<consumer> over(file_descriptor socket, const socket_options &options = {})
	{
		return detail::opened<consumer>([&](auto **out) { return sluice_socket_consumer(socket.release(), &options, out); });
	}
	/// On an endpoint that was inherited or received.
	static result<consumer> attach(file_descriptor endpoint, const ring_options &options = {})
	{
		return detail::opened<consumer>(
			[&](auto **out) { return sluice_ring_attach_consumer(endpoint.release(), &options, out); });
	}

	/// After the last record the error is error::ended().
	result<record> recv(timeout wait = forever) &
	{
		const void *start = nullptr;
		auto returned = sluice_consumer_recv(get(), &start, wait.ms());
		if (returned < 0)
			return error{returned};
		return record{get(), detail::view(start, static_cast<std::size_t>(returned)), {}};
	}
	/// Up to as many records as there is room for their places.
	result<records> recv_batch(std::span<::iovec> room, timeout wait = forever) &
	{
		auto returned = sluice_consumer_recv_batch(get(), room.data(), room.size(), wait.ms());
		if (returned < 0)
			return error{returned};
		return records{get(), {}, room.first(static_cast<std::size_t>(returned))};
	}
	result<std::size_t> recv_into(std::span<std::byte> buffer, timeout wait = forever)
	{
		return detail::length(sluice_consumer_recv_into(get(), buffer.data(), buffer.size(), wait.ms()));
	}
	std::size_t record_max() const noexcept { return sluice_consumer_record_max(get()); }
	int fd() const noexcept { return sluice_consumer_fd(get()); }
	result<bool> prepare_wait() { return detail::number<bool>(sluice_consumer_prepare_wait(get())); }
	void finish_wait() { sluice_consumer_finish_wait(get()); }
	void abort() { sluice_consumer_abort(handle_.release()); }
};

/// Sends messages on a bus. Several threads may use it at the same time.
class sender : public detail::named<sender, ::sluice_sender, sluice_sender_close, bus_options, sluice_bus_open_sender> {
public:
	using named::named;
	static result<sender> attach(file_descriptor endpoint)
	{
		return detail::opened<sender>([&](auto **out) { return sluice_sender_attach(endpoint.release(), out); });
	}

	result<void> send(bytes message, timeout wait = forever) const
	{
		return detail::done(sluice_sender_send(get(), message.data(), message.size(), wait.ms()));
	}
	result<void> send_to(std::uint64_t id, bytes message, timeout wait = forever) const
	{
		return detail::done(sluice_sender_send_to(get(), id, message.data(), message.size(), wait.ms()));
	}
	result<::sluice_bus_state> info() const
	{
		return detail::filled<::sluice_bus_state>([&](auto *out) { return sluice_sender_info(get(), out); });
	}
	int fd() const noexcept { return sluice_sender_fd(get()); }
};

/// Receives copies of the messages of a bus.
class subscriber : public detail::named<subscriber, ::sluice_subscriber, sluice_subscriber_close, bus_options, sluice_bus_open_subscriber> {
public:
	using named::named;
	static result<subscriber> attach(file_descriptor endpoint)
	{
		return detail::opened<subscriber>([&](auto **out) { return sluice_subscriber_attach(endpoint.release(), out); });
	}

	result<::sluice_message> recv(timeout wait = forever) &
	{
		return detail::filled<::sluice_message>([&](auto *out) { return sluice_subscriber_recv(get(), out, wait.ms()); });
	}
	/// Up to as many messages as there is room for. They are valid until the next call that receives.
	result<std::span<const ::sluice_message>> recv_batch(std::span<::sluice_message> room, timeout wait = forever) &
	{
		auto returned = sluice_subscriber_recv_batch(get(), room.data(), room.size(), wait.ms());
		if (returned < 0)
			return error{returned};
		return std::span<const ::sluice_message>{room.first(static_cast<std::size_t>(returned))};
	}
	int fd() const noexcept { return sluice_subscriber_fd(get()); }
};

/// Receives the messages of a bus in place.
class mapped_subscriber : public detail::named<mapped_subscriber, ::sluice_mapped_subscriber, sluice_mapped_subscriber_close, bus_options,
												sluice_bus_open_mapped_subscriber> {
public:
	using named::named;
	static result<mapped_subscriber> attach(file_descriptor endpoint)
	{
		return detail::opened<mapped_subscriber>(
			[&](auto **out) { return sluice_mapped_subscriber_attach(endpoint.release(), out); });
	}

	result<mapped_message> recv(timeout wait = forever) &
	{
		return detail::in_place<mapped_message, ::sluice_message>(
			get(), [&](auto *out) { return sluice_mapped_subscriber_recv(get(), out, wait.ms()); });
	}
	int fd() const noexcept { return sluice_mapped_subscriber_fd(get()); }
};

/// Sends requests to servers. A reply is valid until the next call.
class client : public detail::named<client, ::sluice_client, sluice_client_close, bus_options, sluice_bus_open_client> {
public:
	using named::named;
	result<::sluice_message> call(bytes request, timeout wait = forever) &
	{
		return detail::filled<::sluice_message>(
			[&](auto *out) { return sluice_client_call(get(), request.data(), request.size(), out, wait.ms()); });
	}
};

/// A request, which any thread may answer once.
class request : public detail::object<::sluice_request, sluice_request_drop> {
public:
	using object::object;
	::sluice_message header() const noexcept
	{
		::sluice_message header{};
		sluice_request_message(get(), &header);
		return header;
	}
	result<void> reply(bytes reply, timeout wait = forever) &&
	{
		return detail::done(sluice_request_reply(handle_.release(), reply.data(), reply.size(), wait.ms()));
	}
};

/// Receives requests.
class server : public detail::named<server, ::sluice_server, sluice_server_close, bus_options, sluice_bus_open_server> {
public:
	using named::named;
	result<request> recv(timeout wait = forever)
	{
		return detail::opened<request>([&](auto **out) { return sluice_server_recv(get(), out, wait.ms()); });
	}
	int fd() const noexcept { return sluice_server_fd(get()); }
};

/// Receives the changes of a map. The key of an event is valid until the next call.
class watcher : public detail::object<::sluice_watcher, sluice_watcher_close> {
public:
	using object::object;
	result<::sluice_event> recv(timeout wait = forever) &
	{
		return detail::filled<::sluice_event>([&](auto *out) { return sluice_watcher_recv(get(), out, wait.ms()); });
	}
	int fd() const noexcept { return sluice_watcher_fd(get()); }
};

/// An iteration of a map. Key and value are valid until the next call.
class entries : public detail::object<::sluice_entries, sluice_entries_close> {
public:
	using object::object;
	/// Nothing after the last entry.
	result<std::optional<::sluice_entry>> next() &
	{
		::sluice_entry entry;
		int returned = sluice_entries_next(get(), &entry);
		if (returned < 0)
			return error{returned};
		return returned == 1 ? std::optional{entry} : std::nullopt;
	}
};

/// Operations of map::batch(), which stores their results in them. What they refer to must live until then.
inline ::sluice_operation get_operation(bytes key, std::span<std::byte> room) noexcept
{
	::sluice_operation operation{};
	operation.action = SLUICE_GET;
	operation.key = key.data();
	operation.key_length = key.size();
	operation.buffer = room.data();
	operation.buffer_size = room.size();
	return operation;
}

inline ::sluice_operation set_operation(bytes key, bytes value) noexcept
{
	::sluice_operation operation{};
	operation.action = SLUICE_SET;
	operation.key = key.data();
	operation.key_length = key.size();
	operation.value = value.data();
	operation.value_length = value.size();
	return operation;
}

inline ::sluice_operation erase_operation(bytes key) noexcept
{
	::sluice_operation operation{};
	operation.action = SLUICE_DELETE;
	operation.key = key.data();
	operation.key_length = key.size();
	return operation;
}

/// An open map. Several threads may use it at the same time.
class map : public detail::named<map, ::sluice_map, sluice_map_close, map_options, sluice_map_open> {
public:
	using named::named;
	static result<map> attach(file_descriptor endpoint)
	{
		return detail::opened<map>([&](auto **out) { return sluice_map_attach(endpoint.release(), out); });
	}

	/// Nothing if there is no entry.
	result<std::optional<std::vector<std::byte>>> get_value(bytes key, ::sluice_entry *entry = nullptr) const
	{
		::sluice_entry found{};
		std::vector<std::byte> value(256);
		ssize_t returned;
		while ((returned = sluice_map_get(get(), key.data(), key.size(), value.data(), value.size(), &found)) == -EMSGSIZE)
			value.resize(found.value_length);
		if (returned == -ENOENT)
			return std::optional<std::vector<std::byte>>{};
		if (returned < 0)
			return error{returned};
		value.resize(static_cast<std::size_t>(returned));
		if (entry)
			*entry = found;
		return std::optional{std::move(value)};
	}
	/// Whether it created the entry.
	result<bool> set(bytes key, bytes value, const change_options &options = {}, std::uint64_t *version = nullptr) const
	{
		return detail::number<bool>(
			sluice_map_set(get(), key.data(), key.size(), value.data(), value.size(), &options, version));
	}
	/// Whether there was an entry.
	result<bool> erase(bytes key, const change_options &options = {}, std::uint64_t *number = nullptr) const
	{
		return detail::number<bool>(sluice_map_delete(get(), key.data(), key.size(), &options, number));
	}
	result<void> sync(std::uint64_t number = 0) const { return detail::done(sluice_map_sync(get(), number, nullptr)); }
	/// Executes operations one after the other, and returns how many have failed. The result of each is in it.
	result<std::size_t> batch(std::span<::sluice_operation> operations) const
	{
		return detail::length(sluice_map_batch(get(), operations.data(), operations.size()));
	}
	result<entries> iterate(std::uint32_t flags = 0) const
	{
		return detail::opened<entries>([&](auto **out) { return sluice_map_iterate(get(), flags, out); });
	}
	result<watcher> watch(std::uint64_t after = SLUICE_WATCH_NOW) const
	{
		return detail::opened<watcher>([&](auto **out) { return sluice_map_watch(get(), after, out); });
	}
	result<::sluice_map_state> info() const
	{
		return detail::filled<::sluice_map_state>([&](auto *out) { return sluice_map_info(get(), out); });
	}
	int fd() const noexcept { return sluice_map_fd(get()); }
};

/// Receives the packets of a feed in place. Without a name, of the packet simulator.
class feed_consumer : public detail::object<::sluice_feed_consumer, sluice_feed_consumer_close> {
public:
	using object::object;
	static result<feed_consumer> open(const std::optional<std::string> &name)
	{
		return detail::opened<feed_consumer>(
			[&](auto **out) { return sluice_feed_open_consumer(name ? detail::text(*name).c_str() : nullptr, out); });
	}
	result<packet> recv(timeout wait = forever) &
	{
		return detail::in_place<packet, ::sluice_packet>(
			get(), [&](auto *out) { return sluice_feed_consumer_recv(get(), out, wait.ms()); });
	}
	int fd() const noexcept { return sluice_feed_consumer_fd(get()); }
	result<bool> prepare_wait() { return detail::number<bool>(sluice_feed_consumer_prepare_wait(get())); }
	void finish_wait() { sluice_feed_consumer_finish_wait(get()); }
};

/// Receives copies of the packets of a feed. A packet is valid until the next call. Without a name, of the packet simulator.
class feed_reader : public detail::object<::sluice_feed_reader, sluice_feed_reader_close> {
public:
	using object::object;
	static result<feed_reader> open(const std::optional<std::string> &name)
	{
		return detail::opened<feed_reader>(
			[&](auto **out) { return sluice_feed_open_reader(name ? detail::text(*name).c_str() : nullptr, out); });
	}
	result<::sluice_packet> recv(timeout wait = forever) &
	{
		return detail::filled<::sluice_packet>([&](auto *out) { return sluice_feed_reader_recv(get(), out, wait.ms()); });
	}
	int fd() const noexcept { return sluice_feed_reader_fd(get()); }
};

} // namespace sluice

#endif
