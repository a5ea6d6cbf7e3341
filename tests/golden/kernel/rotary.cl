__attribute__((reqd_work_group_size(64, 4, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part * 4 + team;
    const int p = lane;
    const float v0 = in0[q * 64 + p];
    const float v1 = in1[(q % 32) * 64 + p];
    const float v2 = v0 * v1;
    const float v3 = p < 32 ? (in0[q * 64 + p + 32]) : 0;
    const float v4 = -v3;
    const float v5 = p >= 32 ? (in0[q * 64 + p + -32]) : 0;
    const float v6 = p < 32 ? v4 : v5;
    const float v7 = in2[(q % 32) * 64 + p];
    const float v8 = v6 * v7;
    const float v9 = v2 + v8;
    out0[q * 64 + p] = v9;
}
