/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trainer/trig.h"

/*
 * The Taylor series 1 - q/(n (n+1)) (1 - q/((n+2) (n+3)) (...)) with q the square of the angle, from the inside out. Its
 * first term left out is below (pi/2)^22 / 22! = 2^-55 at the end of the range.
 */
static double series(double square, int first, int last)
{
	double value = 1.0;

	for (int n = last; n >= first; n -= 2)
		value = 1.0 - square / (double)(n * (n + 1)) * value;
	return value;
}

double zd_trig_sine(double angle)
{
	return angle * series(angle * angle, 2, 20);
}

double zd_trig_cosine(double angle)
{
	return series(angle * angle, 1, 19);
}
