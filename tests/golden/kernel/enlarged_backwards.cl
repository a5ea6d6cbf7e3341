__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    for (int item = 0; item < 1; item++) {
        const int p = lane + item * 64;
        const float v0 = in0[p % 7 + (((p / 7) * -1 + 14) / 3) * 7];
        const float v1 = exp(v0);
        out0[p] = v1;
    }
    {
        const int p = lane + 41;
        const float v0 = in0[p % 7 + (((p / 7) * -1 + 14) / 3) * 7];
        const float v1 = exp(v0);
        out0[p] = v1;
    }
}
