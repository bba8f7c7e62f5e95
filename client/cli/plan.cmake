# SPDX-License-Identifier: Apache-2.0
# The commands of zeroctl that need no daemon, and the tables that all commands print.
add_library(zd_cli_plan STATIC
  ${CMAKE_SOURCE_DIR}/client/cli/plan.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_args.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_bound.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_comm.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_formulas.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_hybrid.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_memory.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_model.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_number.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_step.c
  ${CMAKE_SOURCE_DIR}/client/cli/plan_wire.c
  ${CMAKE_SOURCE_DIR}/client/cli/simulate.c
  ${CMAKE_SOURCE_DIR}/client/cli/simulate_adam.c
  ${CMAKE_SOURCE_DIR}/client/cli/simulate_stage3.c
  ${CMAKE_SOURCE_DIR}/client/cli/table.c)
target_link_libraries(zd_cli_plan PUBLIC zd_flags PkgConfig::JANSSON m)
