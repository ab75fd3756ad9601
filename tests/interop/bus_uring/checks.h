/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* All checks. */
#ifndef CHECKS_H
#define CHECKS_H

#define FOR_EACH_CHECK(apply) \
	apply(a_read_waits_for_a_message) \
	apply(a_write_is_received) \
	apply(a_write_waits_for_room) \
	apply(frames_are_read_and_written) \
	apply(a_message_beyond_the_maximum_is_emsgsize) \
	apply(a_message_for_a_small_buffer_stays) \
	apply(a_nowait_request_is_eagain) \
	apply(registered_files_and_buffers_are_used) \
	apply(a_poll_completes_with_a_message) \
	apply(a_poll_completes_with_room) \
	apply(a_multishot_poll_reports_each_message) \
	apply(a_multishot_poll_reports_room_each_time) \
	apply(a_multishot_read_receives_each_message) \
	apply(a_multishot_read_without_buffers_loses_nothing) \
	apply(a_multishot_read_with_small_buffers_is_emsgsize) \
	apply(a_multishot_read_receives_empty_messages) \
	apply(a_cancelled_read_receives_nothing) \
	apply(a_cancelled_write_sends_nothing) \
	apply(a_read_cancelled_as_a_message_arrives_loses_nothing) \
	apply(a_write_cancelled_as_room_appears_sends_once_or_nothing) \
	apply(an_exit_ends_pending_requests) \
	apply(a_killed_process_leaves_no_requests) \
	apply(an_exec_ends_pending_requests) \
	apply(receivers_on_one_ring_get_all_messages_of_a_broadcast) \
	apply(receivers_on_one_ring_take_turns_in_a_multicast) \
	apply(receivers_on_one_ring_share_a_queue) \
	apply(messages_of_each_sender_stay_in_order) \
	apply(a_destroyed_bus_ends_its_receivers_requests) \
	apply(a_destroyed_bus_ends_its_senders_requests) \
	apply(a_destroyed_bus_ends_a_multishot_read)

#define DECLARE(name) void name(void);
FOR_EACH_CHECK(DECLARE)

#endif
