# SPDX-License-Identifier: Apache-2.0
# zerod-lm: the loop and the three places where training state lives.  The model itself is zd_lm (lm.cmake).
add_executable(zerod-lm
  ${CMAKE_CURRENT_LIST_DIR}/main.c
  ${CMAKE_CURRENT_LIST_DIR}/options.c
  ${CMAKE_CURRENT_LIST_DIR}/train.c
  ${CMAKE_CURRENT_LIST_DIR}/report.c
  ${CMAKE_CURRENT_LIST_DIR}/state.c
  ${CMAKE_CURRENT_LIST_DIR}/state_daemon.c
  ${CMAKE_CURRENT_LIST_DIR}/state_replica.c
  ${CMAKE_CURRENT_LIST_DIR}/state_local.c
  ${CMAKE_CURRENT_LIST_DIR}/planes.c
  ${CMAKE_CURRENT_LIST_DIR}/grad.c
  ${CMAKE_CURRENT_LIST_DIR}/connect.c)
target_link_libraries(zerod-lm PRIVATE zd_flags zd_lm zerod_static zd_kernel zd_decide zd_wire zd_program PkgConfig::JANSSON PkgConfig::OPENSSL m)
install(TARGETS zerod-lm RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
