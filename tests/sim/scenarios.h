/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZD_SIM_SCENARIOS_H
#define ZD_SIM_SCENARIOS_H

#define SCENARIOS(X)                              \
	X(test_prepared_everywhere_is_finished)   \
	X(test_prepared_on_one_lane_is_discarded) \
	X(test_decided_on_one_lane_is_finished)   \
	X(test_skip_is_a_decision)                \
	X(test_promise_is_durable_before_joined)  \
	X(test_record_is_durable_before_prepared) \
	X(test_record_that_proves_durable)        \
	X(test_lost_contributions_are_computed_again) \
	X(test_discarded_record_comes_back)       \
	X(test_decision_forgotten_everywhere)     \
	X(test_ghost_of_an_old_connection)        \
	X(test_stale_worker_stops)                \
	X(test_lease_names_the_silent)            \
	X(test_lost_without_a_store)              \
	X(test_slow_reader_is_closed)             \
	X(test_no_deadlock)

#define X(name) void name(void **state);
SCENARIOS(X)
#undef X

#endif
