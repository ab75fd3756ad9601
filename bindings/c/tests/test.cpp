// SPDX-License-Identifier: MIT OR Apache-2.0
// The classes of sluice.hpp. Without arguments rings over a socket are tested, which need no module; with the argument "module" the other
// kinds, too.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>

#include <linux/sluice.h>
#include <sys/ioctl.h>

#include "sluice.hpp"

using namespace std::chrono_literals;

static int passed;

#define EXPECT(condition)                                                                                \
	do {                                                                                                 \
		if (!(condition)) {                                                                              \
			std::fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, \
				     sluice_error_message());                                                            \
			std::exit(1);                                                                                \
		}                                                                                                \
	} while (0)

static_assert(std::is_nothrow_move_constructible_v<sluice::producer>);
static_assert(!std::is_copy_constructible_v<sluice::consumer>);
static_assert(sluice::timeout{1us}.ms() == 1);
static_assert(sluice::timeout{std::chrono::hours::max()}.ms() > 0);
static_assert(sluice::forever.ms() == -1);

// What these calls return is in memory of the object, which a temporary one frees.
template <class T> concept receives_from_temporary = requires(T object) { std::move(object).recv(); };
static_assert(!receives_from_temporary<sluice::consumer> && !receives_from_temporary<sluice::mapped_subscriber>);
static_assert(!receives_from_temporary<sluice::feed_reader>);
static_assert(!receives_from_temporary<sluice::feed_consumer> && !receives_from_temporary<sluice::subscriber>);
static_assert(!receives_from_temporary<sluice::watcher> && receives_from_temporary<sluice::server>);
template <class T> concept reserves_in_temporary = requires(T object) { std::move(object).reserve(1); };
static_assert(!reserves_in_temporary<sluice::producer>);
// The error of a temporary result is not in the result.
static_assert(std::is_same_v<decltype(std::declval<sluice::result<void>>().error()), sluice::error>);
static_assert(std::is_reference_v<decltype(std::declval<sluice::result<void> &>().error())>);

static std::pair<sluice::producer, sluice::consumer> sides()
{
	auto sockets = sluice::socket_pair().value();
	sluice::socket_options options;
	options.capacity = 4096;
	std::optional<sluice::result<sluice::producer>> producer;
	std::thread other{[&] { producer = sluice::producer::over(std::move(sockets.first), options); }};
	auto consumer = sluice::consumer::over(std::move(sockets.second), options).value();
	other.join();
	return {std::move(*producer).value(), std::move(consumer)};
}

static void records_are_released_by_their_objects()
{
	auto [producer, consumer] = sides();
	producer.send(sluice::bytes_of("one")).value();
	{
		auto room = producer.reserve(8).value();
		std::memcpy(room.room().data(), "two", 3);
		EXPECT(!room.commit(9));
		room.commit(3).value();
	}
	{
		auto cancelled = producer.reserve(8).value();
	}
	{
		auto record = consumer.recv(sluice::never).value();
		EXPECT(sluice::text_of(record.data()) == "one");
		auto moved = std::move(record);
		EXPECT(consumer.recv(sluice::never).error().number() == EBUSY);
	}
	iovec places[4];
	{
		auto records = consumer.recv_batch(places).value();
		EXPECT(records.header().size() == 1 && records.header()[0].iov_len == 3);
		records.keep();
	}
	{
		auto kept = consumer.recv(sluice::never).value();
		EXPECT(sluice::text_of(kept.data()) == "two");
	}
	auto empty = consumer.recv(sluice::never);
	EXPECT(!empty && empty.error().would_block() && !empty.error().message().empty());
	EXPECT(consumer.recv(1ms).error().timed_out());
	producer.flush(10s).value();
	passed++;
}

static void an_end_and_errors_are_results()
{
	EXPECT(sluice::timeout{std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()}}.ms() == 0);
	auto [producer, consumer] = sides();
	std::byte buffer[16];
	char last[] = "last";
	iovec records[] = {{last, 4}};
	EXPECT(producer.send_batch(records).value() == 1);
	EXPECT(consumer.recv_into(buffer).value() == 4);
	{
		auto closed = std::move(producer);
	}
	EXPECT(consumer.recv().error().ended());
	EXPECT(producer.send(sluice::bytes_of("x")).error().number() == EINVAL);
	try {
		sluice::connect("/nowhere/socket", sluice::never).value();
		EXPECT(false);
	} catch (const sluice::exception &error) {
		EXPECT(error.error().number() == ENOENT);
		EXPECT(std::string{error.what()}.find("start the listening side first") != std::string::npos);
	}
	EXPECT(!sluice::pipe_options{}.reserved[0] && sluice::pipe_options{}.size == sizeof(sluice_pipe_options));
	EXPECT(sluice::map::open("a/b").error().number() == EINVAL);
	EXPECT(sluice::map::open(std::string_view{"a\0b", 3}).error().number() == EINVAL);
	EXPECT(sluice::connect(std::string_view{"/a\0b", 4}, sluice::never).error().number() == EINVAL);
	EXPECT(sluice::open_pipe_reader("a/b").error().hint().starts_with("use 1 to 63 bytes"));
	passed++;
}

static void a_path_connects_two_threads()
{
	auto path = "/tmp/sluice-cpp-" + std::to_string(getpid());
	auto listener = sluice::listener::bind(path).value();
	EXPECT(listener.accept(sluice::never).error().would_block());
	std::thread other{[&] {
		auto producer = sluice::producer::over(sluice::connect(path).value()).value();
		producer.send(sluice::bytes_of("hello")).value();
	}};
	auto consumer = sluice::consumer::over(listener.accept(10s).value()).value();
	EXPECT(sluice::text_of(consumer.recv(10s).value().data()) == "hello");
	EXPECT(consumer.recv(10s).error().ended());
	other.join();
	passed++;
}

static void the_kinds_of_the_module_work()
{
	auto name = "cpp-test-" + std::to_string(getpid());
	sluice::map_options maps;
	sluice::bus_options buses;
	maps.channel.flags = buses.channel.flags = SLUICE_CREATE;
	auto map = sluice::map::open(name, maps).value();
	auto watcher = map.watch().value();
	auto key = sluice::bytes_of("key");
	EXPECT(!map.get_value(key).value());
	EXPECT(map.set(key, sluice::bytes_of(std::string(1000, 'x'))).value());
	EXPECT(map.get_value(key).value()->size() == 1000);
	EXPECT(watcher.recv(10s).value().change == SLUICE_MAP_CREATED);
	auto entries = map.iterate().value();
	EXPECT(entries.next().value()->value_length == 1000);
	EXPECT(!entries.next().value());
	EXPECT(map.erase(key).value() && !map.erase(key).value());
	EXPECT(map.info().value().entries == 0);
	std::byte value[8];
	sluice_operation operations[] = {
		sluice::set_operation(key, sluice::bytes_of("batch")),
		sluice::get_operation(key, value),
		sluice::erase_operation(key),
		sluice::get_operation(key, value),
	};
	EXPECT(map.batch(operations).value() == 1);
	EXPECT(operations[0].result == 1 && operations[1].result == 5 && !std::memcmp(value, "batch", 5));
	EXPECT(operations[2].result == 1 && operations[3].result == -ENOENT);
	EXPECT(map.batch({operations, 0}).value() == 0);

	auto sender = sluice::sender::open(name, buses).value();
	auto subscriber = sluice::subscriber::open(name, buses).value();
	sender.send(sluice::bytes_of("hello")).value();
	auto message = subscriber.recv(10s).value();
	EXPECT(sluice::text_of(sluice::data_of(message)) == "hello" && message.uid == getuid());

	auto attached = sluice::sender::attach(sluice::file_descriptor{dup(sender.fd())}).value();
	attached.send(sluice::bytes_of("one")).value();
	attached.send(sluice::bytes_of("two")).value();
	sluice_message room[4];
	auto messages = subscriber.recv_batch(room, 10s).value();
	EXPECT(messages.size() == 2 && sluice::text_of(sluice::data_of(messages[1])) == "two");
	auto same = sluice::map::attach(sluice::file_descriptor{dup(map.fd())}).value();
	EXPECT(same.info().value().sequence == map.info().value().sequence);

	auto server = sluice::server::open(name + "-server", buses).value();
	auto client = sluice::client::open(name + "-server").value();
	std::thread other{[&] {
		auto request = server.recv(10s).value();
		auto data = sluice::data_of(request.header());
		std::move(request).reply(data).value();
	}};
	EXPECT(sluice::text_of(sluice::data_of(client.call(sluice::bytes_of("ping"), 10s).value())) == "ping");
	other.join();
	passed++;
}

static void channels_are_created_queried_and_removed()
{
	auto name = "cpp-created-" + std::to_string(getpid());
	sluice::create_pipe(name).value();
	sluice::create_ring(name).value();
	sluice::create_bus(name).value();
	sluice::create_map(name).value();
	EXPECT(sluice::create_map(name).error().number() == EEXIST);
	EXPECT(sluice::query_channel(SLUICE_KIND_PIPE, name).value().uid == getuid());
	EXPECT(sluice::query_ring(name).value().producer == SLUICE_RING_ROLE_VACANT);
	EXPECT(sluice::query_bus(name).value().subscribers == 0);
	EXPECT(sluice::query_map(name).value().entries == 0);
	EXPECT(sluice::query_map(name, "/nowhere").error().number() == ENOENT);
	EXPECT(sluice::query_map(std::string_view{"a\0b", 3}).error().number() == EINVAL);
	for (auto kind : {SLUICE_KIND_PIPE, SLUICE_KIND_RING, SLUICE_KIND_BUS, SLUICE_KIND_MAP})
		sluice::unlink_channel(kind, name).value();
	EXPECT(sluice::query_bus(name).error().number() == ENOENT);
	passed++;
}

static void a_feed_is_read()
{
	auto reader = sluice::feed_reader::open({}).value();
	EXPECT(reader.recv(sluice::never).error().would_block());
	EXPECT(sluice::feed_reader::open({}).error().number() == EBUSY);
	sluice_feed_start start{};
	start.size = sizeof(start);
	start.cpu = SLUICE_FEED_CPU_ANY;
	start.interval_ns = 1000000;
	start.count = 5;
	start.length = 64;
	EXPECT(ioctl(reader.fd(), SLUICE_FEED_START, &start) == 0);
	EXPECT(sluice::data_of(reader.recv(10s).value()).size() == 64);
	EXPECT(sluice::query_feed("cpp-nowhere").error().number() == ENOENT);
	passed++;
}

int main(int argc, char **argv)
{
	records_are_released_by_their_objects();
	an_end_and_errors_are_results();
	a_path_connects_two_threads();
	if (argc > 1 && std::string_view{argv[1]} == "module") {
		the_kinds_of_the_module_work();
		channels_are_created_queried_and_removed();
		a_feed_is_read();
	}
	std::printf("%d passed, 0 failed\n", passed);
}
