/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libuv MAP: prints the changes of a map in an event loop of libuv, until it is destroyed or interrupted. Change it with:
 * sluice map set MAP KEY VALUE
 */
#include <errno.h>
#include <sluice.h>
#include <stdio.h>
#include <uv.h>

static const char *const changes[] = { "changed", "created", "updated", "deleted", "expired" };

static void print_event(const struct sluice_event *event)
{
	uint32_t known = event->change < sizeof(changes) / sizeof(changes[0]) ? event->change : 0;

	if (event->missed > 0)
		printf("%llu changes missed\n", (unsigned long long)event->missed);
	printf("%s %.*s, version %llu\n", changes[known], (int)event->key_length, (const char *)event->key,
	       (unsigned long long)event->version);
}

/* The descriptor does not tell of events that were received with an earlier one: receive until there are none. */
static void on_readable(uv_poll_t *handle, int status, int events)
{
	struct sluice_event event;
	int result;

	(void)status;
	(void)events;
	while ((result = sluice_watcher_recv(handle->data, &event, 0)) == 0)
		print_event(&event);
	if (result == -EAGAIN)
		return;
	fprintf(stderr, "%s; %s\n", sluice_error_message(), sluice_error_hint());
	uv_stop(handle->loop);
}

static void on_interrupt(uv_signal_t *handle, int number)
{
	(void)number;
	uv_stop(handle->loop);
}

int main(int argc, char **argv)
{
	struct sluice_map_options options = SLUICE_MAP_OPTIONS_INIT;
	struct sluice_map *map = NULL;
	struct sluice_watcher *watcher = NULL;
	uv_loop_t *loop = uv_default_loop();
	uv_poll_t readable;
	uv_signal_t interrupt;

	options.channel.flags = SLUICE_CREATE;
	if (argc != 2 || sluice_map_open(argv[1], &options, &map) < 0 ||
	    sluice_map_watch(map, SLUICE_WATCH_NOW, &watcher) < 0) {
		fprintf(stderr, "%s; %s\n", argc == 2 ? sluice_error_message() : "usage: libuv MAP", sluice_error_hint());
		return 1;
	}
	uv_poll_init(loop, &readable, sluice_watcher_fd(watcher));
	readable.data = watcher;
	uv_poll_start(&readable, UV_READABLE, on_readable);
	uv_signal_init(loop, &interrupt);
	uv_signal_start(&interrupt, on_interrupt, SIGINT);
	uv_run(loop, UV_RUN_DEFAULT);
	/* The loop lets go of a descriptor before it is closed. */
	uv_poll_stop(&readable);
	sluice_watcher_close(watcher);
	sluice_map_close(map);
	return 0;
}
