# SPDX-License-Identifier: Apache-2.0
# zeroctl: administration; the planner and the simulations are zd_cli_plan (plan.cmake).
add_executable(zeroctl
  ${CMAKE_CURRENT_LIST_DIR}/main.c
  ${CMAKE_CURRENT_LIST_DIR}/admin.c
  ${CMAKE_CURRENT_LIST_DIR}/status.c
  ${CMAKE_CURRENT_LIST_DIR}/job.c
  ${CMAKE_CURRENT_LIST_DIR}/doctor.c
  ${CMAKE_CURRENT_LIST_DIR}/bench.c)
target_link_libraries(zeroctl PRIVATE zd_flags zd_cli_plan zerod_static zd_wire PkgConfig::JANSSON m)
install(TARGETS zeroctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
