/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sine and cosine that have the same bits on every machine: only additions and multiplications, in a fixed order. (Those of
 * C libraries differ in the last place between versions and processors, and ranks must agree exactly.)
 *
 * For angles within +-pi/2; absolute error below 2^-51. Pure; any thread.
 */
#ifndef ZD_TRAINER_TRIG_H
#define ZD_TRAINER_TRIG_H

double zd_trig_sine(double angle);
double zd_trig_cosine(double angle);

#endif
