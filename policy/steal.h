/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Steal monitor: how many cores a guest should use, from what it got and what was stolen from it in
 * each period. Pure: the same samples give the same decisions, so that a recorded trace can be
 * replayed.
 *
 * Two governors. `step` is the rule of [preferred-v2]: one core fewer while steal is above `high`,
 * one more while it is not above `low`. `proportional` is ours: it goes at once to as many cores as
 * the host gave CPUs, takes a shrink back if it cost CPU time, and grows by 1, 2, 4, … once steal
 * has been low for long.
 *
 * Example: 8 cores of one CPU, all busy, of which the host gives 5: steal is 3/8 of the time.
 * After `agree` such samples `step` prefers 7 cores, and after as many again 6; `proportional`
 * prefers 5 at once.
 *
 * Why the shrink may cost. A host that shares by vCPU (all in one group) gives a guest that runs
 * fewer vCPUs less, and its neighbours more. Such a host does not reward who asks for less, so we
 * stop doing it: CPU time is compared before and after. Where every VM has a group of its own, as
 * libvirt makes them, fewer vCPUs get the same CPU time, and the guest keeps what it packs.
 */
#ifndef OVERBOOK_POLICY_STEAL_H
#define OVERBOOK_POLICY_STEAL_H

#include "types.h"

/* Ratios and CPUs are in these parts: 10000 is one CPU, or all of what is looked at. */
#define OVB_STEAL_ONE 10000u

enum ovb_governor {
	OVB_GOVERNOR_STEP = 0,
	OVB_GOVERNOR_PROPORTIONAL = 1,
};

struct ovb_steal_rules {
	/* enum ovb_governor. */
	ovb_u32 governor;
	/* Hundredths of a percent, 0 to 10000, low <= high. Steal must exceed `high`, strictly, and
	 * not exceed `low`. */
	ovb_u32 low;
	ovb_u32 high;
	/* Consecutive samples that must agree before anything changes, 1 to 100. */
	ovb_u32 agree;
	/* Samples of low steal before `proportional` grows, 1 to 1000. */
	ovb_u32 quiet;
	/* Cores at least, 1 or more. */
	ovb_u32 floor;
};

/* What happened in a period. */
struct ovb_steal_sample {
	ovb_u64 elapsed_ns;
	/* Summed over all CPUs: CPU time that the guest had, and that was stolen from it. */
	ovb_u64 run_ns;
	ovb_u64 steal_ns;
	/* CPUs of all cores, and of the preferred ones, at least 1. */
	ovb_u32 cpus;
	ovb_u32 preferred;
};

enum ovb_steal_direction {
	OVB_STEAL_HOLD = 0,
	OVB_STEAL_SHRINK = 1,
	OVB_STEAL_GROW = 2,
};

/* Zero at start, and whenever the cores change by another hand (hotplug, a mask set by the user):
 * what was learnt is about other cores then. */
struct ovb_steal_state {
	/* Where the last samples pointed, and how many of them. */
	ovb_u32 direction;
	ovb_u32 agreed;
	/* Most cores that any of the agreeing samples asked for. */
	ovb_u32 target;
	/* Cores that the next growth adds; 0 means 1. */
	ovb_u32 stride;
	/* Doublings of `quiet`: growths that were followed by steal. */
	ovb_u32 doublings;
	/* The last change was a growth. */
	ovb_u32 grown;
	/* CPU time (of OVB_STEAL_ONE) of a sample, in the mean of the last ones with these cores,
	 * and how many these are, at most OVB_STEAL_MEMORY. The next one is of two numbers of
	 * cores, and does not count. */
	ovb_u32 run_mean;
	ovb_u32 run_samples;
	ovb_u32 mixed;
	ovb_u32 stolen_from;
	/* The last shrink: cores and CPU time before it, whether the guest wanted all its CPUs, how
	 * far it is judged (enum ovb_steal_phase), and the most CPU time that a sample had since.
	 */
	ovb_u32 before_cores;
	ovb_u32 before_run;
	ovb_u32 before_full;
	ovb_u32 judge;
	ovb_u32 run_most;
	/* The guest wanted all its CPUs when it shrank, and lost nothing: what it has is right even
	 * if some of it is stolen, as a fraction of a core always is. */
	ovb_u32 vetted;
	/* Samples for which nothing shrinks, and doublings of that time. */
	ovb_u32 hold;
	ovb_u32 regrets;
};

/* A shrink that lost CPU time is not tried again for so many samples; then for twice as many. */
#define OVB_STEAL_HOLD_SAMPLES 16u
#define OVB_STEAL_DOUBLINGS    6u
/* Samples that a mean remembers, and that a shrink is judged by at most, twice. Those of a fifth of
 * a second differ by a fifth among each other. */
#define OVB_STEAL_MEMORY 8u

/* part · 10000 ÷ whole, saturating; 0 if whole is 0. Off by one part in 2^17 at most. */
static inline ovb_u32 ovb_steal_ratio(ovb_u64 part, ovb_u64 whole)
{
	ovb_u32 times, rest, divisor;

	while (whole > 0x3ffff) {
		part >>= 1;
		whole >>= 1;
	}
	if (!whole)
		return 0;
	if (part > 0xffffffffu)
		return ~0u;
	divisor = (ovb_u32)whole;
	times = (ovb_u32)part / divisor;
	rest = (ovb_u32)part % divisor;
	if (times >= ~0u / OVB_STEAL_ONE)
		return ~0u;
	return times * OVB_STEAL_ONE + rest * OVB_STEAL_ONE / divisor;
}

/* Steal in hundredths of a percent of so many CPUs. */
static inline ovb_u32 ovb_steal_of(const struct ovb_steal_sample *sample, ovb_u32 cpus)
{
	return ovb_steal_ratio(sample->steal_ns, sample->elapsed_ns * (cpus ? cpus : 1));
}

/* A part of the time of all `cores`, as cores; rounded up, but for a sixteenth of a core. cores is
 * below 2^16. */
static inline ovb_u32 ovb_steal_cores(ovb_u64 time, ovb_u64 whole_time, ovb_u32 cores)
{
	ovb_u32 part = ovb_steal_ratio(time, whole_time), whole, rest;

	if (part > OVB_STEAL_ONE)
		part = OVB_STEAL_ONE;
	whole = cores * part / OVB_STEAL_ONE;
	rest = cores * part % OVB_STEAL_ONE;
	return whole + (rest > OVB_STEAL_ONE / 16);
}

/* Whether a guest wants seven eighths of its preferred CPUs, or more. */
static inline int ovb_steal_wants_all(const struct ovb_steal_sample *sample)
{
	return ovb_steal_ratio(sample->run_ns + sample->steal_ns,
			       sample->elapsed_ns * sample->preferred) >=
	       OVB_STEAL_ONE - OVB_STEAL_ONE / 8;
}

/*
 * Cores of `cores` that a guest with steal should use. One that wants all of them: as many as the
 * host gave CPUs, in the mean. One that idles at times: as many as it wants, and one fewer than
 * now, but what it was given in any case.
 */
static inline ovb_u32 ovb_steal_given(const struct ovb_steal_sample *sample, ovb_u32 run_mean,
				      ovb_u32 cores)
{
	ovb_u32 given =
		ovb_steal_cores(run_mean, (ovb_u64)OVB_STEAL_ONE * sample->preferred, cores);
	ovb_u32 wanted;

	if (ovb_steal_wants_all(sample))
		return given;
	wanted = ovb_steal_cores(sample->run_ns + sample->steal_ns,
				 sample->elapsed_ns * sample->preferred, cores);
	if (wanted >= cores)
		wanted = cores - 1;
	return wanted > given ? wanted : given;
}

static inline ovb_u32 ovb_steal_clamp(ovb_u32 cores, ovb_u32 floor, ovb_u32 all)
{
	if (cores < floor)
		cores = floor;
	if (cores < 1)
		cores = 1;
	return cores > all ? all : cores;
}

/* Takes a sample's direction into account; true if enough of them agree. */
static inline int ovb_steal_agree(struct ovb_steal_state *state, ovb_u32 direction, ovb_u32 enough)
{
	if (state->direction != direction) {
		state->direction = direction;
		state->agreed = 0;
		state->target = 0;
	}
	if (state->agreed < 0xffff)
		state->agreed++;
	return direction != OVB_STEAL_HOLD && state->agreed >= enough;
}

/* The rule of [preferred-v2]. */
static inline ovb_u32 ovb_steal_step(struct ovb_steal_state *state,
				     const struct ovb_steal_rules *rules,
				     const struct ovb_steal_sample *sample, ovb_u32 cores,
				     ovb_u32 all)
{
	ovb_u32 steal = ovb_steal_of(sample, sample->cpus);
	ovb_u32 direction = steal > rules->high	 ? OVB_STEAL_SHRINK
			    : steal > rules->low ? OVB_STEAL_HOLD
						 : OVB_STEAL_GROW;

	if (!ovb_steal_agree(state, direction, rules->agree))
		return cores;
	state->agreed = 0;
	return ovb_steal_clamp(direction == OVB_STEAL_SHRINK ? cores - 1 : cores + 1, rules->floor,
			       all);
}

/* The mean begins anew. */
static inline void ovb_steal_forget(struct ovb_steal_state *state)
{
	state->run_mean = 0;
	state->run_samples = 0;
}

/* Takes a sample's CPU time into the mean. What a guest used before others wanted its CPUs is no
 * measure for what it can have now. */
static inline void ovb_steal_remember(struct ovb_steal_state *state, ovb_u32 run, int stolen_from)
{
	if (!state->judge && !state->stolen_from != !stolen_from)
		ovb_steal_forget(state);
	state->stolen_from = stolen_from ? 1 : 0;
	if (state->mixed) {
		state->mixed = 0;
		return;
	}
	if (state->run_samples < OVB_STEAL_MEMORY)
		state->run_samples++;
	if (run > state->run_mean)
		state->run_mean += (run - state->run_mean) / state->run_samples;
	else
		state->run_mean -= (state->run_mean - run) / state->run_samples;
}

enum ovb_steal_phase {
	OVB_STEAL_JUDGED = 0,
	OVB_STEAL_EARLY = 1,
	OVB_STEAL_LATE = 2,
};

enum ovb_steal_verdict {
	/* Too early to say. */
	OVB_STEAL_OPEN = 0,
	OVB_STEAL_RIGHT = 1,
	OVB_STEAL_REGRETTED = 2,
};

/* Whether the last shrink cost CPU time that the guest still wants, by the samples since, while
 * time is still being stolen. Clear cases are seen in the samples that `agree`: all of them lost a
 * quarter, or their mean less than a sixteenth. Others take twice as many more, as the first ones
 * may be of tasks that were still on their way; then an eighth is too much. (Whether it wants all
 * its CPUs says nothing here: who gets less done waits less.) */
static inline enum ovb_steal_verdict ovb_steal_judge(struct ovb_steal_state *state,
						     const struct ovb_steal_rules *rules,
						     ovb_u32 steal, ovb_u32 run)
{
	int late = state->judge == OVB_STEAL_LATE;
	ovb_u32 before = state->before_run, enough = late ? 2 * rules->agree : rules->agree;

	if (run > state->run_most)
		state->run_most = run;
	if (state->run_samples < enough && state->run_samples < OVB_STEAL_MEMORY)
		return OVB_STEAL_OPEN;
	if (steal <= rules->low || state->run_mean >= before - before / (late ? 8 : 16))
		return OVB_STEAL_RIGHT;
	if (late || state->run_most < before - before / 4)
		return OVB_STEAL_REGRETTED;
	state->judge = OVB_STEAL_LATE;
	ovb_steal_forget(state);
	return OVB_STEAL_OPEN;
}

/* A rule of ours; see above. */
static inline ovb_u32 ovb_steal_proportional(struct ovb_steal_state *state,
					     const struct ovb_steal_rules *rules,
					     const struct ovb_steal_sample *sample, ovb_u32 cores,
					     ovb_u32 all)
{
	ovb_u32 steal = ovb_steal_of(sample, sample->preferred), target, wait;
	ovb_u32 run = ovb_steal_ratio(sample->run_ns, sample->elapsed_ns);
	ovb_u32 mixed = state->mixed;

	ovb_steal_remember(state, run, steal > rules->high);
	if (state->judge) {
		switch (mixed ? OVB_STEAL_OPEN : ovb_steal_judge(state, rules, steal, run)) {
		case OVB_STEAL_OPEN:
			/* Nothing changes before the last change is judged. */
			return cores;
		case OVB_STEAL_REGRETTED:
			state->hold = OVB_STEAL_HOLD_SAMPLES << state->regrets;
			if (state->regrets < OVB_STEAL_DOUBLINGS)
				state->regrets++;
			state->agreed = 0;
			state->judge = OVB_STEAL_JUDGED;
			return ovb_steal_clamp(state->before_cores, rules->floor, all);
		case OVB_STEAL_RIGHT:
			state->agreed = 0;
			state->judge = OVB_STEAL_JUDGED;
			state->vetted = state->before_full;
		}
	}
	if (state->hold)
		state->hold--;
	/* Nothing is known of this size yet. */
	if (mixed)
		return cores;
	if (steal > rules->high && !state->hold) {
		int enough = ovb_steal_agree(state, OVB_STEAL_SHRINK, rules->agree);

		/* The most that any of the samples asked for. */
		target = ovb_steal_clamp(ovb_steal_given(sample, state->run_mean, cores),
					 rules->floor, all);
		if (target > state->target)
			state->target = target;
		if (!enough)
			return cores;
		target = state->target;
		/* It shrank while it wanted little, wants more now, and is stolen from all the
		 * same: begin anew, so that whatever comes is judged under this load. Less and less
		 * often, as a guest whose tasks wait for each other never wants all. */
		if (target >= cores && !state->vetted && cores < all) {
			wait = state->doublings;
			if (state->agreed < rules->agree + (rules->quiet << wait))
				return cores;
			if (wait < OVB_STEAL_DOUBLINGS)
				wait++;
			*state = (struct ovb_steal_state){.regrets = state->regrets,
							  .doublings = wait};
			return all;
		}
		state->before_run = run < state->run_mean ? run : state->run_mean;
		state->before_full = ovb_steal_wants_all(sample) ? 1 : 0;
		state->agreed = 0;
		state->target = 0;
		if (target >= cores)
			return cores;
		/* Steal right after a growth: the next one waits for longer. */
		if (state->grown && state->doublings < OVB_STEAL_DOUBLINGS)
			state->doublings++;
		state->grown = 0;
		state->stride = 0;
		state->before_cores = cores;
		state->judge = OVB_STEAL_EARLY;
		state->run_most = 0;
		return target;
	}
	if (steal > rules->low) {
		ovb_steal_agree(state, OVB_STEAL_HOLD, 1);
		return cores;
	}
	wait = state->stride ? rules->agree : rules->quiet << state->doublings;
	if (!ovb_steal_agree(state, OVB_STEAL_GROW, wait))
		return cores;
	/* It lasts with as many cores as were too many once: the host has changed. */
	if (cores >= state->before_cores)
		state->doublings = 0;
	if (cores >= all)
		return cores;
	if (!state->stride)
		state->stride = 1;
	target = cores + state->stride;
	if (state->stride < 0x8000)
		state->stride *= 2;
	state->grown = 1;
	state->judge = OVB_STEAL_JUDGED;
	state->agreed = 0;
	return ovb_steal_clamp(target, rules->floor, all);
}

/*
 * Cores to prefer after a sample, of `all` (1 to 65535), `cores` of which are preferred now. The
 * result is from rules->floor (at most all) to all.
 */
static inline ovb_u32 ovb_steal_decide(struct ovb_steal_state *state,
				       const struct ovb_steal_rules *rules,
				       const struct ovb_steal_sample *sample, ovb_u32 cores,
				       ovb_u32 all)
{
	ovb_u32 wanted;

	/* A period without time says nothing. */
	if (!sample->elapsed_ns)
		return ovb_steal_clamp(cores, rules->floor, all);
	wanted = rules->governor == OVB_GOVERNOR_STEP
			 ? ovb_steal_step(state, rules, sample, cores, all)
			 : ovb_steal_proportional(state, rules, sample, cores, all);
	wanted = ovb_steal_clamp(wanted, rules->floor, all);
	if (wanted != cores) {
		ovb_steal_forget(state);
		state->mixed = 1;
	}
	return wanted;
}

#endif
