# SPDX-License-Identifier: Apache-2.0
# zeroctl: administration; the planner and the simulations are zd_cli_plan (plan.cmake).
add_executable(zeroctl
  ${CMAKE_CURRENT_LIST_DIR}/main.c
  ${CMAKE_CURRENT_LIST_DIR}/help.c
  ${CMAKE_CURRENT_LIST_DIR}/admin.c
  ${CMAKE_CURRENT_LIST_DIR}/status.c
  ${CMAKE_CURRENT_LIST_DIR}/job.c
  ${CMAKE_CURRENT_LIST_DIR}/doctor.c
  ${CMAKE_CURRENT_LIST_DIR}/bench.c)
target_link_libraries(zeroctl PRIVATE zd_flags zd_cli_plan zd_shell zerod_static zd_kernel zd_wire zd_program PkgConfig::JANSSON m)
# doctor takes the daemon's checks out of zd_shell; what else that library needs stays out.
target_link_options(zeroctl PRIVATE -Wl,--as-needed)
install(TARGETS zeroctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
