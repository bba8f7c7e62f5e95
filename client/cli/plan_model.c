/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/plan_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/plan_number.h"
#include "proto/limits.h"

static const char unit_form[] = "a unit such as 855M, 80x855M or 80x855M:frozen";

/* "80x855M:frozen" into its three parts. */
static bool parse_unit(const char *text, uint64_t *ret_count, struct zd_plan_unit *ret_unit)
{
	char number[64];
	const char *colon = strchr(text, ':');
	size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
	char *cross, *numel = number;
	double count = 1.0, value;

	if (len >= sizeof(number) || (colon != NULL && strcmp(colon, ":frozen") != 0))
		return false;
	memcpy(number, text, len);
	number[len] = '\0';
	cross = strchr(number, 'x');
	if (cross != NULL) {
		*cross = '\0';
		numel = cross + 1;
		if (!zd_plan_number_parse(number, ZD_NUMBER_COUNT, &count))
			return false;
	}
	if (!zd_plan_number_parse(numel, ZD_NUMBER_COUNT, &value))
		return false;
	if (count < 1.0 || count != rint(count) || count > ZD_UNITS_MAX || value < 1.0 || value != rint(value) ||
	    value > (double)ZD_NUMEL_MAX)
		return false;
	*ret_count = (uint64_t)count;
	*ret_unit = (struct zd_plan_unit){ .numel = (uint64_t)value, .frozen = colon != NULL };
	return true;
}

static void add_unit(struct zd_plan_model *m, struct zd_plan_unit unit)
{
	double numel = (double)unit.numel;

	m->units[m->unit_count++] = unit;
	m->largest = numel > m->largest ? numel : m->largest;
	if (unit.frozen) {
		m->frozen += numel;
		return;
	}
	m->trainable += numel;
	m->largest_trained = numel > m->largest_trained ? numel : m->largest_trained;
}

static int add_texts(struct zd_plan_model *m, const struct zd_command *cmd, const struct zd_arg_texts *texts, FILE *err)
{
	for (size_t i = 0; i < texts->count; i++) {
		struct zd_plan_unit unit;
		uint64_t count;

		if (!parse_unit(texts->items[i], &count, &unit))
			return zd_args_error(cmd, err, "--unit: expected %s, found '%s'", unit_form, texts->items[i]);
		if (m->unit_count + count > ZD_UNITS_MAX)
			return zd_args_error(cmd, err, "--unit: expected at most %u units, found more; "
					     "gather several blocks in one", ZD_UNITS_MAX);
		while (count-- > 0)
			add_unit(m, unit);
	}
	if (m->trainable == 0.0)
		return zd_args_error(cmd, err, "--unit: expected at least one unit that is trained, found only frozen ones");
	return ZD_PLAN_EXIT_OK;
}

/* More than usual only where units of the largest size would not hold the model. */
static uint64_t assumed_units(uint64_t total)
{
	uint64_t needed = total / ZD_NUMEL_MAX + 1;

	if (needed > ZD_PLAN_UNITS_ASSUMED)
		return needed;
	return total < ZD_PLAN_UNITS_ASSUMED ? total : ZD_PLAN_UNITS_ASSUMED;
}

static int add_equal(struct zd_plan_model *m, const struct zd_command *cmd, double params, uint64_t count, FILE *err)
{
	uint64_t total = (uint64_t)params;

	if (params != rint(params))
		return zd_args_error(cmd, err, "--params: expected a whole number, found %.17g", params);
	m->assumed = count == 0;
	if (m->assumed)
		count = assumed_units(total);
	if (count > total)
		return zd_args_error(cmd, err, "--units: expected at most one unit a parameter (%g), found %g", params,
				     (double)count);
	if (total / count + (total % count != 0) > ZD_NUMEL_MAX)
		return zd_args_error(cmd, err, "expected units of at most %g parameters, found %g; give more --units",
				     (double)ZD_NUMEL_MAX, params / (double)count);
	for (uint64_t i = 0; i < count; i++)
		add_unit(m, (struct zd_plan_unit){ .numel = total / count + (i < total % count) });
	return ZD_PLAN_EXIT_OK;
}

int zd_plan_model_init(struct zd_plan_model *model, const struct zd_command *command, const struct zd_arg_texts *texts,
		       double params, uint64_t unit_count, FILE *err)
{
	bool given = params != 0.0;
	int rc;

	if (given == (texts->count > 0))
		return zd_args_error(command, err, "expected either --params N or --unit, found %s; "
				     "give one, for example --params 7.5e9", given ? "both" : "neither");
	if (!given && unit_count > 0)
		return zd_args_error(command, err, "expected --units only with --params, found it with --unit; remove one");
	*model = (struct zd_plan_model){ .units = calloc(ZD_UNITS_MAX, sizeof(*model->units)) };
	if (model->units == NULL) {
		fprintf(err, "zeroctl %s: expected memory for %u units, found none\n", command->name, ZD_UNITS_MAX);
		return ZD_PLAN_EXIT_FAILED;
	}
	rc = given ? add_equal(model, command, params, unit_count, err) : add_texts(model, command, texts, err);
	if (rc != ZD_PLAN_EXIT_OK)
		zd_plan_model_fini(model);
	return rc;
}

void zd_plan_model_fini(struct zd_plan_model *model)
{
	free(model->units);
	model->units = NULL;
}
