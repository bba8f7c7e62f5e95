/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of decoded fields: what a message may say in itself, whatever the state of the conversation.  Whether a job, unit, range or
 * ballot exists is for the lane to say.
 */
#ifndef ZD_PROTO_VALIDATE_H
#define ZD_PROTO_VALIDATE_H

#include "proto/wire.h"

/* msg is of `type`.  0 or -ZD_ERR_BAD_FIELD with a text. */
int zd_validate(uint16_t type, const ProtobufCMessage *msg, char *text, size_t text_size) ZD_MUST_USE;

#endif
